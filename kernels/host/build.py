"""A .cu file compiled by g++ into a library that the simulator runs, kept by what went in."""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import re
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from dspark.kernels.errors import CompileError

HOST = Path(__file__).parent
KERNELS = HOST.parent

MODES: dict[str, tuple[str, ...]] = {
    # The compiler announces every access, and calls the simulator where it would call a sanitizer.
    "checked": (
        "-O1",
        "-fsanitize=thread,alignment,bounds,shift,signed-integer-overflow,integer-divide-by-zero",
        "--param=tsan-distinguish-volatile=1",
        "--param=tsan-instrument-func-entry-exit=0",
    ),
    "fast": ("-O2",),
    "asan": ("-O1", "-fsanitize=address", "-fno-omit-frame-pointer"),
}
"""How kernels are compiled; see README.md for what each mode sees."""

_COMPILER = "g++"
_COMMON = ("-std=c++17", "-g1", "-fPIC", "-fvisibility=hidden", "-fno-gnu-unique")
_KERNEL_FLAGS = ("-Wall", "-Wno-unknown-pragmas", "-Wno-unused-variable", "-ffp-contract=off")
_KERNEL = re.compile(
    r'extern\s+"C"\s+__attribute__\(\(noinline,\s*used\)\)\s+void\s+(?P<name>\w+)\s*\('
)


@dataclass(frozen=True, slots=True)
class Parameter:
    """What a kernel takes at one place.

    `kind` is p for a pointer, i for an integer, f for a floating-point number, b for a bool.
    """

    kind: str
    size: int


@dataclass(frozen=True, slots=True)
class Library:
    """Compiled kernels, loaded. Each has state of its own: one launch at a time."""

    file: Path
    mode: str
    kernels: Mapping[str, tuple[Parameter, ...]]
    handle: ctypes.CDLL


def build(
    source: Path, folder: Path, mode: str = "checked", defines: Sequence[str] = ()
) -> Library:
    """The kernels of `source`, compiled in one of `MODES` unless `folder` has them already.

    `defines` are macros such as `PAGE=16`. The key of what is kept holds the source, every header,
    the flags and the compiler's version. A library in mode asan can only be loaded in a process
    that was started with `environment("asan")`.

    Raises:
        CompileError: there is no g++, or it refuses the source; the message ends with its log.
    """
    flags = (*_COMMON, *MODES[mode], *_KERNEL_FLAGS, *(f"-D{define}" for define in defines))
    runtime = _runtime(folder)
    name = _digest(*flags, runtime.name, source.read_text("utf-8"), *_texts(_headers()))
    file = folder / f"{source.stem}-{mode}-{name}.so"
    if not file.is_file():
        _compile_kernels(source.resolve(), file, flags, runtime)
    return _load(file, mode)


def environment(mode: str) -> dict[str, str]:
    """The variables that a process needs beyond its own to load libraries in `mode`.

    Raises:
        CompileError: there is no g++, or it came without the library.
    """
    if mode != "asan":
        return {}
    library = _run([_COMPILER, "-print-file-name=libasan.so"]).strip()
    if not Path(library).is_file():
        raise CompileError(f"`{_COMPILER}` comes without AddressSanitizer (`{library}`)")
    # Python itself leaks, and what fibers leave behind looks like a leak too.
    return {"LD_PRELOAD": library, "ASAN_OPTIONS": "detect_leaks=0"}


@cache
def _load(file: Path, mode: str) -> Library:
    handle = ctypes.CDLL(str(file))
    handle.dspark_sim_kernels.restype = ctypes.c_char_p
    handle.dspark_sim_report.restype = ctypes.c_char_p
    listed = json.loads(handle.dspark_sim_kernels())
    kernels = {
        name: tuple(Parameter(kind, size) for kind, size in parameters)
        for name, parameters in listed.items()
    }
    return Library(file, mode, kernels, handle)


def _compile_kernels(source: Path, file: Path, flags: Sequence[str], runtime: Path) -> None:
    command = [_COMPILER, *flags, f"-I{KERNELS}", "-include", str(HOST / "cuda.h"), "-x", "c++"]
    # Kernels may come out of macros, so they are looked for behind the preprocessor.
    preprocessed = _run([*command, "-E", "-P", str(source)], source.name)
    kernels = [match["name"] for match in _KERNEL.finditer(preprocessed)]
    if not kernels:
        raise CompileError(f'`{source.name}` has no `extern "C" __global__ void` kernel')
    stub = f'#include "{source}"\n' + "".join(f"SIM_KERNEL({kernel})\n" for kernel in kernels)
    link = ["-shared", "-Wl,-Bsymbolic"]
    if "-fsanitize=address" in flags:
        link.append("-fsanitize=address")
    with tempfile.TemporaryDirectory(dir=file.parent) as scratch:
        text, code, linked = (Path(scratch) / name for name in ("stub.cpp", "stub.o", "linked.so"))
        text.write_text(stub, encoding="utf-8")
        _run([*command, "-c", str(text), "-o", str(code)], source.name)
        # Linked without -fsanitize=thread: the simulator is what the compiler's calls go to.
        _run([_COMPILER, *link, str(code), str(runtime), "-o", str(linked)], source.name)
        linked.replace(file)


def _runtime(folder: Path) -> Path:
    """The simulator's own code, compiled once for all kernels."""
    flags = (*_COMMON, "-O2", "-Wall", "-Wextra")
    sources = sorted((HOST / "runtime").glob("*.cpp"))
    headers = [*sorted((HOST / "runtime").glob("*.h")), HOST / "runtime.h", HOST / "interface.h"]
    file = folder / f"runtime-{_digest(*flags, _version(), *_texts([*sources, *headers]))}.o"
    if file.is_file():
        return file
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        # As one piece: most of the time goes into the standard library's headers.
        text, code = Path(scratch) / "runtime.cpp", Path(scratch) / "runtime.o"
        text.write_text("".join(f'#include "{each.resolve()}"\n' for each in sources), "utf-8")
        _run([_COMPILER, *flags, "-c", str(text), "-o", str(code)], "the simulator")
        code.replace(file)
    return file


def _headers() -> list[Path]:
    return [*sorted(KERNELS.glob("*.cuh")), *sorted(HOST.glob("*.h"))]


def _texts(files: Sequence[Path]) -> list[str]:
    return [file.read_text(encoding="utf-8") for file in files]


def _digest(*parts: str) -> str:
    digest = hashlib.sha256()
    for part in parts:
        encoded = part.encode()
        digest.update(len(encoded).to_bytes(8, "little") + encoded)
    return digest.hexdigest()[:20]


@cache
def _version() -> str:
    return _run([_COMPILER, "--version"])


def _run(command: Sequence[str], what: str = "a question") -> str:
    try:
        # The compiler's words are looked at, so they must not depend on the user's language.
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, env={**os.environ, "LC_ALL": "C"}
        )
    except FileNotFoundError as error:
        raise CompileError(f"`{command[0]}` is missing, and the simulator needs it") from error
    if done.returncode:
        raise CompileError(f"`{command[0]}` does not take `{what}`\n{done.stderr.rstrip()}")
    return done.stdout
