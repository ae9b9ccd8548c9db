"""Launches of compiled kernels on a CPU; what is wrong with one is an exception."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dspark.kernels.errors import LaunchError
from dspark.kernels.host.build import Library, Parameter
from dspark.kernels.host.memory import Memory
from dspark.kernels.host.report import KernelFault, Report, read_report

Argument = npt.NDArray[Any] | np.generic | None
_KINDS = {"i": "i", "u": "i", "f": "f", "b": "b"}


class _Buffer(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("data", ctypes.c_void_p),
        ("bytes", ctypes.c_uint64),
    )


class _Request(ctypes.Structure):
    _fields_ = (
        ("kernel", ctypes.c_char_p),
        ("grid", ctypes.c_uint32 * 3),
        ("block", ctypes.c_uint32 * 3),
        ("shared_bytes", ctypes.c_uint64),
        ("arguments", ctypes.POINTER(ctypes.c_void_p)),
        ("buffers", ctypes.POINTER(_Buffer)),
        ("buffer_count", ctypes.c_uint32),
        ("resident", ctypes.c_uint32),
        ("seed", ctypes.c_uint64),
    )


@dataclass(frozen=True, slots=True)
class Schedule:
    """Who has the turn. Seed 0: threads and blocks in order, each as far as it gets.

    Any other seed shuffles the blocks and interrupts threads, in one of three ways that alternate
    with the seed: any thread next, the latest woken, or the same warp. `resident` blocks are alive
    at once; 0 is the whole grid, for kernels whose blocks wait for each other.
    """

    seed: int = 0
    resident: int = 1


IN_ORDER = Schedule()


class Simulator:
    """A device that is a CPU: launches see the arrays of `memory` and nothing else."""

    def __init__(self, memory: Memory, schedule: Schedule = IN_ORDER) -> None:
        self.memory = memory
        self.schedule = schedule

    def launch(
        self,
        library: Library,
        kernel: str,
        grid: Sequence[int],
        block: Sequence[int],
        arguments: Sequence[Argument],
        shared_bytes: int = 0,
    ) -> Report:
        """Runs `kernel` to its end and says what it moved.

        `grid` and `block` have one to three sizes. An argument is an array of the memory, or a view
        of one, or None for a pointer that may be null; else a numpy scalar of the parameter's size.

        Raises:
            LaunchError: there is no such kernel, or an argument is not what it takes.
            KernelFault: something is wrong with the kernel, or no GPU has such a launch.
        """
        if kernel not in library.kernels:
            raise LaunchError(f"`{library.file.name}` has no kernel `{kernel}`")
        parameters = library.kernels[kernel]
        if len(arguments) != len(parameters):
            raise LaunchError(
                f"`{kernel}` takes {len(parameters)} arguments, and {len(arguments)} were given"
            )
        values = [
            self._value(f"argument {place} of `{kernel}`", argument, parameter)
            for place, (argument, parameter) in enumerate(zip(arguments, parameters, strict=True))
        ]
        addresses = (ctypes.c_void_p * max(1, len(values)))(
            *(ctypes.addressof(value) for value in values)
        )
        buffers = self.memory.buffers
        listed = (_Buffer * max(1, len(buffers)))(
            *(_Buffer(each.name.encode(), each.address, each.size) for each in buffers)
        )
        request = _Request(
            kernel.encode(),
            (ctypes.c_uint32 * 3)(*_three(grid)),
            (ctypes.c_uint32 * 3)(*_three(block)),
            shared_bytes,
            ctypes.cast(addresses, ctypes.POINTER(ctypes.c_void_p)),
            listed,
            len(buffers),
            self.schedule.resident,
            self.schedule.seed,
        )
        library.handle.dspark_sim_launch(ctypes.byref(request))
        findings, report = read_report(library.handle.dspark_sim_report().decode(), library.file)
        if findings:
            raise KernelFault(kernel, findings)
        return report

    def _value(self, what: str, argument: Argument, parameter: Parameter) -> ctypes.Array[Any]:
        if parameter.kind == "p":
            return _bytes(self._address(what, argument).to_bytes(8, "little"))
        if not isinstance(argument, np.generic):
            raise LaunchError(f"{what} must be a numpy scalar of {parameter.size} bytes")
        if _KINDS.get(argument.dtype.kind) != parameter.kind or argument.nbytes != parameter.size:
            raise LaunchError(
                f"{what} is {argument.dtype}, and the kernel takes {_name(parameter)}"
            )
        return _bytes(argument.tobytes())

    def _address(self, what: str, argument: Argument) -> int:
        if argument is None:
            return 0
        if not isinstance(argument, np.ndarray):
            raise LaunchError(f"{what} must be an array, or None for null")
        if not self.memory.holds(argument):
            raise LaunchError(f"{what} is an array outside the simulator's memory")
        return argument.ctypes.data


def _bytes(content: bytes) -> ctypes.Array[Any]:
    return ctypes.create_string_buffer(content, len(content))


def _name(parameter: Parameter) -> str:
    kind = {"i": "an integer", "f": "a float", "b": "a bool"}[parameter.kind]
    return f"{kind} of {parameter.size} bytes"


def _three(sizes: Sequence[int]) -> tuple[int, int, int]:
    x, y, z = (*sizes, 1, 1)[:3]
    return x, y, z
