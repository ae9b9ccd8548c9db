"""What NVIDIA's driver says of this machine: its version, and the GPUs. No CuPy, no torch."""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass

LIBRARY = "libcuda.so.1"
"""The driver's own library; `DSPARK_LIBCUDA` names another one."""

_MAJOR, _MINOR, _SHARED = 75, 76, 97
"""Attributes by their numbers in cuda.h; the last is what a block has if its kernel asks for it."""

_LONGEST_NAME = 256


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU. `architecture` is its compute capability, as 90 for 9.0; memory is in bytes.

    `block_shared_memory` is the most that a block of threads may share.
    """

    ordinal: int
    name: str
    architecture: int
    total_memory: int
    free_memory: int
    block_shared_memory: int


@dataclass(frozen=True, slots=True)
class Machine:
    """What was found; `trouble` is why there are no `gpus`, in the words of whoever said so.

    `driver` is the newest CUDA version that the driver supports, None without a driver.
    """

    driver: tuple[int, int] | None
    gpus: tuple[Gpu, ...]
    trouble: str | None


class _Trouble(Exception):
    """A call into the driver failed; its text says which, and with what."""


def look() -> Machine:
    """The driver and the GPUs of this machine. Raises nothing: what fails is the answer."""
    library = os.environ.get("DSPARK_LIBCUDA") or LIBRARY
    try:
        driver = _Driver(ctypes.CDLL(library))
    except OSError:
        return Machine(None, (), f"there is no NVIDIA driver (`{library}` is not installed)")
    try:
        version = driver.version()
    except (_Trouble, AttributeError) as trouble:
        return Machine(None, (), f"`{library}` is no NVIDIA driver: {trouble}")
    try:
        gpus = tuple(driver.gpus())
    except (_Trouble, AttributeError) as trouble:
        return Machine(version, (), f"the NVIDIA driver does not start: {trouble}")
    return Machine(version, gpus, None if gpus else "the NVIDIA driver sees no GPU")


class _Driver:
    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library

    def version(self) -> tuple[int, int]:
        number = ctypes.c_int()
        self._call("cuDriverGetVersion", ctypes.byref(number))
        return number.value // 1000, number.value % 1000 // 10

    def gpus(self) -> list[Gpu]:
        count = ctypes.c_int()
        self._call("cuInit", 0)
        self._call("cuDeviceGetCount", ctypes.byref(count))
        return [self._gpu(ordinal) for ordinal in range(count.value)]

    def _gpu(self, ordinal: int) -> Gpu:
        device = ctypes.c_int()
        name = ctypes.create_string_buffer(_LONGEST_NAME)
        self._call("cuDeviceGet", ctypes.byref(device), ordinal)
        self._call("cuDeviceGetName", name, _LONGEST_NAME, device)
        architecture = 10 * self._attribute(_MAJOR, device) + self._attribute(_MINOR, device)
        free, total = self._memory(device)
        shown, shared = name.value.decode("utf-8", "replace"), self._attribute(_SHARED, device)
        return Gpu(ordinal, shown, architecture, total, free, shared)

    def _attribute(self, which: int, device: ctypes.c_int) -> int:
        value = ctypes.c_int()
        self._call("cuDeviceGetAttribute", ctypes.byref(value), which, device)
        return value.value

    def _memory(self, device: ctypes.c_int) -> tuple[int, int]:
        # What is free is known only within a context, which is given back at once.
        free, total, context = ctypes.c_size_t(), ctypes.c_size_t(), ctypes.c_void_p()
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        try:
            self._call("cuCtxPushCurrent_v2", context)
            try:
                self._call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
            finally:
                self._call("cuCtxPopCurrent_v2", ctypes.byref(context))
        finally:
            self._call("cuDevicePrimaryCtxRelease_v2", device)
        return free.value, total.value

    def _call(self, function: str, *arguments: object) -> None:
        status = getattr(self._library, function)(*arguments)
        if status:
            name = ctypes.c_char_p()
            self._library.cuGetErrorName(status, ctypes.byref(name))
            shown = f"error {status}" if name.value is None else name.value.decode()
            raise _Trouble(f"{function} says {shown}")
