"""What this machine can decode on, piece by piece, and what to do about each piece that is missing.

Nothing heavy is imported: packages are looked for, the driver is asked directly, and the kernels
are compiled for the GPUs that are there, which also means that nobody waits for it later.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from dspark.budget import physical_memory
from dspark.contract import Finding
from dspark.findings import finding
from dspark.kernels.cubins import Compiler, kernel_cache
from dspark.kernels.machine import Gpu, Machine
from dspark.kernels.signatures import kernels_in
from dspark.runtime.devices import DEVICES, Device, package_troubles
from dspark.runtime.gpu import (
    Trouble,
    compile_trouble,
    kernel_files,
    shown_version,
    survey,
    usable_gpus,
)

_PACKAGES = {
    "torch": ("torch",),
    "cupy": ("cupy-cuda13x", "cupy-cuda12x", "cupy"),
    "numpy": ("numpy",),
    "tokenizers": ("tokenizers",),
}
"""Module -> the distributions that bring it."""


@dataclass(frozen=True, slots=True)
class Compiled:
    """The kernels that ship, and for which architectures they lie compiled in `cache`."""

    count: int
    files: int
    cache: Path
    architectures: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Examination:
    """What was found. A device with findings cannot be used; each says what to do."""

    packages: Mapping[str, str | None]
    cores: int
    memory: int
    machine: Machine
    compiler: Compiler | None
    kernels: Compiled
    findings: Mapping[Device, tuple[Finding, ...]]

    def usable(self, device: Device) -> bool:
        """Whether `device` can decode here."""
        return not self.findings[device]

    def to_json(self) -> dict[str, object]:
        """The object that `dspark doctor --json` prints (schema: `doctor.schema.json`)."""
        driver, compiler = self.machine.driver, self.compiler
        return {
            "devices": {
                device: {
                    "usable": self.usable(device),
                    "findings": [each.to_json() for each in self.findings[device]],
                }
                for device in DEVICES
            },
            "cpu": {"cores": self.cores, "memory": self.memory},
            "driver": None if driver is None else shown_version(driver),
            "gpus": [
                {
                    "ordinal": gpu.ordinal,
                    "name": gpu.name,
                    "architecture": f"sm_{gpu.architecture}",
                    "total_memory": gpu.total_memory,
                    "free_memory": gpu.free_memory,
                }
                for gpu in self.machine.gpus
            ],
            "compiler": None
            if compiler is None
            else {
                "version": shown_version(compiler.nvrtc.version),
                "nvrtc": str(compiler.toolkit.nvrtc),
                "include": str(compiler.toolkit.include),
            },
            "kernels": {
                "count": self.kernels.count,
                "files": self.kernels.files,
                "cache": str(self.kernels.cache),
                "compiled": [f"sm_{each}" for each in self.kernels.architectures],
            },
            "packages": dict(self.packages),
        }


def examine(memory: int | None = None) -> Examination:
    """Looks at this machine; `memory` is how many bytes a GPU must have free, if that is known."""
    machine, compiler, troubles = survey(package_troubles("cuda"))
    found = _findings(troubles)
    usable = usable_gpus(machine, compiler)
    compiled: list[int] = []
    files = kernel_files()
    if compiler is not None:
        for architecture in sorted({gpu.architecture for gpu in usable}):
            failure = compile_trouble(compiler, files, architecture)
            if failure is None:
                compiled.append(architecture)
            else:
                found += _findings([failure])
    if memory is not None and usable:
        found += _memory_findings(usable, memory)
    return Examination(
        packages={module: _version(module) for module in _PACKAGES},
        cores=len(os.sched_getaffinity(0)),
        memory=physical_memory(),
        machine=machine,
        compiler=compiler,
        kernels=Compiled(len(kernels_in()), len(files), kernel_cache(), tuple(compiled)),
        findings={"cpu": tuple(_findings(package_troubles("cpu"))), "cuda": tuple(found)},
    )


def _memory_findings(gpus: Sequence[Gpu], needed: int) -> list[Finding]:
    roomiest = max(gpus, key=lambda gpu: gpu.free_memory)
    if roomiest.free_memory >= needed:
        return []
    available = roomiest.free_memory
    return [finding("gpu-memory-short", gpu=roomiest.name, available=available, needed=needed)]


def _findings(troubles: Iterable[Trouble]) -> list[Finding]:
    return [finding(each.name, **each.values) for each in troubles]


def _version(module: str) -> str | None:
    if find_spec(module) is None:
        return None
    for distribution in _PACKAGES[module]:
        try:
            return metadata.version(distribution)
        except metadata.PackageNotFoundError:
            continue
    return "of unknown version"
