"""A driver of NVIDIA's that says what a test wants, for machines that have none."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent / "fake_libcuda.c"
H200 = "90:NVIDIA H200:150000000000:149000000000:232448"
RTX_4090 = "89:NVIDIA GeForce RTX 4090:25000000000:24000000000:101376"


def build(folder: Path) -> Path:
    """The library, compiled into `folder`."""
    library = folder / "libcuda-fake.so"
    command = ["g++", "-x", "c++", "-fpermissive", "-w", "-shared", "-fPIC"]
    wrapped = folder / "fake.cpp"
    wrapped.write_text(f'extern "C" {{\n#include "{SOURCE}"\n}}\n', encoding="utf-8")
    subprocess.run([*command, str(wrapped), "-o", str(library)], check=True)
    return library


def install(
    monkeypatch: pytest.MonkeyPatch,
    library: Path,
    *gpus: str,
    driver: int = 13000,
    failing: str = "",
) -> None:
    """Makes `library` this machine's driver; a GPU is `capability:name:total:free:shared`."""
    monkeypatch.setenv("DSPARK_LIBCUDA", str(library))
    monkeypatch.setenv("FAKE_DRIVER", str(driver))
    monkeypatch.setenv("FAKE_GPUS", ";".join(gpus))
    monkeypatch.setenv("FAKE_FAIL", failing)


def uninstall(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes this machine one without a driver."""
    monkeypatch.setenv("DSPARK_LIBCUDA", "libcuda-is-not-here.so")
