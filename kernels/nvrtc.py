"""NVRTC, NVIDIA's run-time compiler, called directly: it compiles for any GPU and needs none."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from dspark.kernels.errors import CompileError

_Pointer = ctypes.c_void_p
_Texts = ctypes.POINTER(ctypes.c_char_p)
_CALLS: dict[str, list[object]] = {
    "nvrtcVersion": [ctypes.POINTER(ctypes.c_int), ctypes.POINTER(ctypes.c_int)],
    "nvrtcGetNumSupportedArchs": [ctypes.POINTER(ctypes.c_int)],
    "nvrtcGetSupportedArchs": [ctypes.POINTER(ctypes.c_int)],
    "nvrtcCreateProgram": [
        *(ctypes.POINTER(_Pointer), ctypes.c_char_p, ctypes.c_char_p),
        *(ctypes.c_int, _Texts, _Texts),
    ],
    "nvrtcDestroyProgram": [ctypes.POINTER(_Pointer)],
    "nvrtcCompileProgram": [_Pointer, ctypes.c_int, _Texts],
    "nvrtcGetProgramLogSize": [_Pointer, ctypes.POINTER(ctypes.c_size_t)],
    "nvrtcGetProgramLog": [_Pointer, ctypes.c_char_p],
    "nvrtcGetCUBINSize": [_Pointer, ctypes.POINTER(ctypes.c_size_t)],
    "nvrtcGetCUBIN": [_Pointer, ctypes.c_char_p],
}


class Nvrtc:
    """The library at `path`.

    Raises:
        CompileError: it is no NVRTC.
    """

    def __init__(self, path: Path) -> None:
        try:
            # It opens its other half by name alone, which finds it only where it is open already.
            for builtins in path.parent.glob("libnvrtc-builtins.so.*"):
                ctypes.CDLL(str(builtins))
            self._library = ctypes.CDLL(str(path))
            for name, types in _CALLS.items():
                function = getattr(self._library, name)
                function.argtypes = types
                function.restype = ctypes.c_int
            self._library.nvrtcGetErrorString.restype = ctypes.c_char_p
        except (OSError, AttributeError) as error:
            raise CompileError(f"`{path}` cannot be used as NVRTC: {error}") from error
        self.path = path

    @property
    def version(self) -> tuple[int, int]:
        """The CUDA version it belongs to."""
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._call("nvrtcVersion", ctypes.byref(major), ctypes.byref(minor))
        return major.value, minor.value

    @property
    def architectures(self) -> tuple[int, ...]:
        """What it compiles for, as 80 for sm_80."""
        count = ctypes.c_int()
        self._call("nvrtcGetNumSupportedArchs", ctypes.byref(count))
        found = (ctypes.c_int * count.value)()
        self._call("nvrtcGetSupportedArchs", found)
        return tuple(found)

    def compile(self, source: str, file: str, options: Sequence[str]) -> bytes:
        """Machine code (a cubin) of `source`, which errors call `file`.

        `options` must name a real architecture, as `-arch=sm_90`.

        Raises:
            CompileError: the source is wrong; the message ends with the compiler's log.
        """
        program = _Pointer()
        self._call(
            *("nvrtcCreateProgram", ctypes.byref(program), source.encode(), file.encode()),
            *(0, None, None),
        )
        try:
            flags = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
            status = self._library.nvrtcCompileProgram(program, len(options), flags)
            if status:
                log = self._bytes(program, "nvrtcGetProgramLog").rstrip(b"\0\n").decode()
                raise CompileError(f"`{file}` does not compile: {self._text(status)}\n{log}")
            return self._bytes(program, "nvrtcGetCUBIN")
        finally:
            self._call("nvrtcDestroyProgram", ctypes.byref(program))

    def _bytes(self, program: ctypes.c_void_p, getter: str) -> bytes:
        size = ctypes.c_size_t()
        self._call(f"{getter}Size", program, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(size.value)
        self._call(getter, program, buffer)
        return buffer.raw

    def _call(self, name: str, *arguments: object) -> None:
        status = getattr(self._library, name)(*arguments)
        if status:
            raise CompileError(f"NVRTC failed in {name}: {self._text(status)}")

    def _text(self, status: int) -> str:
        text: bytes = self._library.nvrtcGetErrorString(status)
        return text.decode()


@cache
def open_nvrtc(path: Path) -> Nvrtc:
    """The library at `path`, opened once. Raises `CompileError`."""
    return Nvrtc(path)
