"""Step 1: what machine this is, and whether the kernels compile for it."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import time
from importlib import metadata
from pathlib import Path

from benchmarks.gpu.notes import Notes
from dspark.kernels.cubins import open_compiler
from dspark.kernels.machine import look
from dspark.kernels.signatures import kernels_in
from dspark.kernels.toolkit import find_program

PACKAGES = (
    *("numpy", "torch", "cupy-cuda13x", "cupy-cuda12x", "cuda-core", "transformers", "pytest"),
    *("hypothesis", "tokenizers", "PyYAML", "pydantic", "jsonschema"),
)
REPOSITORY = Path(__file__).parents[2]


def run(notes: Notes, *, rehearsal: bool) -> None:
    """Notes the card, the driver, the toolkit and the packages, and compiles every kernel."""
    machine = look()
    cuda = "none" if machine.driver is None else "{}.{}".format(*machine.driver)
    notes.fact("python", platform.python_version())
    notes.fact("cpu", f"{len(os.sched_getaffinity(0))} cores, {platform.machine()}")
    notes.fact("driver", _driver_version())
    notes.fact("CUDA of the driver", cuda)
    for gpu in machine.gpus:
        memory = f"{gpu.free_memory / 2**30:.1f} of {gpu.total_memory / 2**30:.1f} GiB free"
        notes.fact(f"card {gpu.ordinal}", f"{gpu.name}, sm_{gpu.architecture}, {memory}")
    notes.fact("nvcc", _nvcc_version())
    for package in PACKAGES:
        notes.fact(package, _version(package))
    notes.fact("commit", _commit())
    if machine.trouble is not None and not rehearsal:
        notes.trouble(machine.trouble)
        return
    compiler = open_compiler()
    notes.fact("NVRTC", "{}.{} ({})".format(*compiler.nvrtc.version, compiler.toolkit.nvrtc))
    architectures = {gpu.architecture for gpu in machine.gpus} or {90}
    files = sorted({signature.file for signature in kernels_in().values()})
    for architecture in sorted(architectures):
        started = time.perf_counter()
        for file in files:
            compiler.cubin(file, architecture)
        seconds = time.perf_counter() - started
        notes.figure(f"{len(files)} files of kernels ready for sm_{architecture}", seconds, "s")


def _driver_version() -> str:
    said = _said("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")
    if said is not None:
        return ", ".join(sorted(set(said.split())))
    kernel_module = Path("/proc/driver/nvidia/version")
    if kernel_module.is_file():
        return kernel_module.read_text(encoding="utf-8").splitlines()[0]
    return "not said: there is no nvidia-smi"


def _nvcc_version() -> str:
    nvcc = find_program("nvcc")
    said = None if nvcc is None else _said(str(nvcc), "--version")
    return "not found" if said is None else said.strip().splitlines()[-1]


def _commit() -> str:
    said = _said("git", "-C", str(REPOSITORY), "describe", "--always", "--dirty")
    return "not known: git does not say" if said is None else said.strip()


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def _said(program: str, *arguments: str) -> str | None:
    """What a program prints; None where there is no such program, or it fails."""
    if shutil.which(program) is None:
        return None
    done = subprocess.run([program, *arguments], capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 and done.stdout.strip() else None
