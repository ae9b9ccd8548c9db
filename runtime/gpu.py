"""What keeps this package from computing on a GPU of this machine, by the names of findings.

The driver is asked directly and kernels are compiled; CuPy and torch are not imported.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from dspark.kernels.cubins import Compiler, open_compiler
from dspark.kernels.errors import CompileError, ToolkitMissing
from dspark.kernels.machine import Gpu, Machine, look
from dspark.kernels.signatures import kernels_in

OLDEST_ARCHITECTURE = 80
"""Compute capability 8.0, the first with asynchronous copies and bfloat16 tensor cores."""


class Trouble(NamedTuple):
    """A finding of `rules/findings.yaml` by name, and the values of its message."""

    name: str
    values: dict[str, object]


class Survey(NamedTuple):
    """What computing on a GPU stands on here, and what is wrong with it, the most basic first."""

    machine: Machine
    compiler: Compiler | None
    troubles: tuple[Trouble, ...]


def survey(packages: Iterable[Trouble]) -> Survey:
    """Looks at driver, GPUs and compiler; `packages` is what is wrong with those."""
    machine = look()
    # What no installation cures comes first, and a compiler last, since packages bring it.
    found = [*_machine_troubles(machine), *packages]
    try:
        compiler = open_compiler()
    except (ToolkitMissing, CompileError) as error:
        trouble = Trouble("kernels-not-compiled", {"reason": str(error)})
        return Survey(machine, None, (*found, trouble))
    return Survey(machine, compiler, (*found, *_compiler_troubles(machine, compiler)))


def _machine_troubles(machine: Machine) -> Iterator[Trouble]:
    """Why there is no GPU, or why none of them will do whatever is installed."""
    if machine.trouble is not None:
        values: dict[str, object] = {"device": "cuda", "reason": machine.trouble}
        yield Trouble("device-unavailable", values)
    elif not usable_gpus(machine, None):
        yield from _objections(machine, None)


def _compiler_troubles(machine: Machine, compiler: Compiler) -> Iterator[Trouble]:
    """Why what the compiler makes runs on none of the GPUs that would do."""
    if machine.trouble is not None or machine.driver is None:
        return
    # Machine code runs under any driver of the same major version, or of a later one.
    needed = compiler.nvrtc.version
    if machine.driver[0] < needed[0]:
        got, expected = shown_version(machine.driver), shown_version(needed)
        yield Trouble("driver-too-old", {"got": got, "expected": expected})
    if usable_gpus(machine, None) and not usable_gpus(machine, compiler):
        yield from _objections(machine, compiler)


def _objections(machine: Machine, compiler: Compiler | None) -> Iterator[Trouble]:
    for gpu in machine.gpus:
        trouble = objection(gpu, compiler)
        if trouble is not None:
            yield trouble


def usable_gpus(machine: Machine, compiler: Compiler | None) -> list[Gpu]:
    """The GPUs that the kernels run on."""
    return [gpu for gpu in machine.gpus if objection(gpu, compiler) is None]


def objection(gpu: Gpu, compiler: Compiler | None) -> Trouble | None:
    """Why the kernels do not run on this GPU, if they do not."""
    got = shown_version(divmod(gpu.architecture, 10))
    values: dict[str, object] = {"gpu": gpu.name, "got": got}
    if gpu.architecture < OLDEST_ARCHITECTURE:
        oldest = shown_version(divmod(OLDEST_ARCHITECTURE, 10))
        return Trouble("unsupported-gpu", values | {"expected": oldest})
    if compiler is not None and gpu.architecture not in compiler.nvrtc.architectures:
        version = shown_version(compiler.nvrtc.version)
        return Trouble("unsupported-gpu", values | {"version": version})
    return None


def kernel_files() -> list[Path]:
    """The sources of all kernels that ship."""
    return sorted({signature.file for signature in kernels_in().values()})


def compile_trouble(compiler: Compiler, files: Sequence[Path], architecture: int) -> Trouble | None:
    """Compiles the kernels for a GPU, as far as they are not yet; why that fails, if it does."""
    try:
        for file in files:
            compiler.cubin(file, architecture)
    except CompileError as error:
        return Trouble("kernels-not-compiled", {"reason": str(error).partition("\n")[0]})
    return None


def shown_version(version: tuple[int, int]) -> str:
    """A version as people write it: `13.0`."""
    return f"{version[0]}.{version[1]}"
