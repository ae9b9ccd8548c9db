"""Where the compiler and the headers of CUDA lie: in the wheels, else where CUDA is installed.

Only files are looked for; nothing here needs a driver or a GPU.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from dspark.kernels.errors import ToolkitMissing

_WHEEL_ROOTS = ("nvidia/cu13", "nvidia/cuda_nvrtc", "nvidia/cuda_runtime")
"""Where wheels of CUDA 13 and of CUDA 12 unpack to, below site-packages."""

DEFAULT = Path("/usr/local/cuda")
"""Where CUDA's own installer puts it."""

HEADER = "cuda_bf16.h"
"""The one CUDA header that kernels include."""


@dataclass(frozen=True, slots=True)
class Toolkit:
    """Paths of NVRTC and of the folder with CUDA's headers."""

    nvrtc: Path
    include: Path


def find_toolkit() -> Toolkit:
    """The first toolkit in the wheels of this Python, `CUDA_HOME`, `CUDA_PATH`, /usr/local/cuda.

    Raises:
        ToolkitMissing: there is no NVRTC, or no header, in any of them.
    """
    nvrtc = _first(_libraries())
    include = _first(root / "include" / HEADER for root in _roots())
    if nvrtc is None:
        raise ToolkitMissing("NVRTC (`libnvrtc.so`) is neither installed as a wheel nor with CUDA")
    if include is None:
        raise ToolkitMissing(f"CUDA's headers (`{HEADER}`) are neither in a wheel nor with CUDA")
    return Toolkit(nvrtc, include.parent)


def find_program(name: str) -> Path | None:
    """A program of the toolkit, such as `cuobjdump`; None where there is none."""
    found = _first(root / "bin" / name for root in _roots())
    if found is not None:
        return found
    on_path = shutil.which(name)
    return None if on_path is None else Path(on_path)


def _roots() -> Iterator[Path]:
    for folder in sys.path:
        for root in _WHEEL_ROOTS:
            yield Path(folder) / root
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if os.environ.get(variable):
            yield Path(os.environ[variable])
    yield DEFAULT


def _libraries() -> Iterator[Path]:
    for root in _roots():
        for folder in ("lib", "lib64"):
            # The newest first; the .alt builds beside it are for other allocators.
            versions = (root / folder).glob("libnvrtc.so.[0-9]*")
            yield from sorted(versions, key=lambda path: path.name, reverse=True)
            yield root / folder / "libnvrtc.so"


def _first(paths: Iterator[Path]) -> Path | None:
    return next((path for path in paths if path.is_file()), None)
