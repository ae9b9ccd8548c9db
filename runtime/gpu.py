"""What keeps this package from computing on a GPU of this machine, by the names of findings.

The driver is asked directly and kernels are compiled; CuPy and torch are not imported.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from dspark.kernels.cubins import Compiler
from dspark.kernels.errors import CompileError
from dspark.kernels.machine import Gpu, Machine
from dspark.kernels.signatures import kernels_in

OLDEST_ARCHITECTURE = 80
"""Compute capability 8.0, the first with asynchronous copies and bfloat16 tensor cores."""


class Trouble(NamedTuple):
    """A finding of `rules/findings.yaml` by name, and the values of its message."""

    name: str
    values: dict[str, object]


def machine_troubles(machine: Machine, compiler: Compiler | None) -> Iterator[Trouble]:
    """What is wrong with the driver, and with the GPUs where none of them will do."""
    if machine.trouble is not None:
        remedy = "install NVIDIA's driver on a machine with a GPU, or use the device `cpu`"
        values: dict[str, object] = {"device": "cuda", "reason": machine.trouble, "remedy": remedy}
        yield Trouble("device-unavailable", values)
        return
    if compiler is not None and machine.driver is not None:
        # Machine code runs under any driver of the same major version, or of a later one.
        needed = compiler.nvrtc.version
        if machine.driver[0] < needed[0]:
            got, expected = shown_version(machine.driver), shown_version(needed)
            yield Trouble("driver-too-old", {"got": got, "expected": expected})
    objections = [objection(gpu, compiler) for gpu in machine.gpus]
    if all(objections):
        yield from (each for each in objections if each is not None)


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
