"""Kernels are compiled once for what they are made of, and again when that changes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dspark.kernels.errors import CompileError
from dspark.kernels.host import build as build_module
from dspark.kernels.host.build import build, environment
from tests.kernels.host.bench import CASES

SOURCE = """
#include "device.cuh"
#ifndef TIMES
#define TIMES 2
#endif
#define SCALE(type) extern "C" __global__ void scale_##type(type* x) { x[threadIdx.x] *= TIMES; }
SCALE(float)
SCALE(int)
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    file = tmp_path / "scale.cu"
    file.write_text(SOURCE, encoding="utf-8")
    return file


def test_kernels_out_of_a_macro_are_found(source: Path, compiled: Path) -> None:
    assert {"scale_float", "scale_int"} == set(build(source, compiled).kernels)


def test_the_same_source_is_compiled_once(
    source: Path, compiled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = build(source, compiled)

    def no_compiler(command: list[str]) -> str:
        raise AssertionError(command)

    build_module._version()  # asked once a process
    monkeypatch.setattr(build_module, "_run", no_compiler)

    assert first is build(source, compiled)


def test_another_source_flag_or_mode_is_another_library(source: Path, compiled: Path) -> None:
    files = [build(source, compiled).file]
    files.append(build(source, compiled, mode="fast").file)
    files.append(build(source, compiled, defines=["TIMES=3"]).file)
    source.write_text(SOURCE.replace("TIMES 2", "TIMES 5"), encoding="utf-8")
    files.append(build(source, compiled).file)

    assert len(set(files)) == 4


def test_another_header_is_another_library(
    source: Path, compiled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = build(source, compiled).file
    header = tmp_path / "more.h"
    header.write_text("", encoding="utf-8")
    headers = [*build_module._headers(), header]
    monkeypatch.setattr(build_module, "_headers", lambda: headers)

    assert first != build(source, compiled).file


def test_a_mistake_in_the_source_is_the_compilers_to_tell(source: Path, compiled: Path) -> None:
    source.write_text(SOURCE + "\nint broken = undeclared;\n", encoding="utf-8")

    with pytest.raises(CompileError, match=r"does not take `scale\.cu`") as caught:
        build(source, compiled)

    assert "scale.cu:10:14: error: 'undeclared' was not declared" in str(caught.value)


def test_a_source_without_a_kernel_is_refused(source: Path, compiled: Path) -> None:
    source.write_text('#include "device.cuh"\n', encoding="utf-8")

    with pytest.raises(CompileError, match=r'`scale\.cu` has no `extern "C" __global__ void`'):
        build(source, compiled)


def test_a_machine_without_gcc_is_told(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build_module, "_COMPILER", "g++-of-nowhere")

    with pytest.raises(CompileError, match=r"`g\+\+-of-nowhere` is missing, and the"):
        build(source, tmp_path / "empty")


ASAN = """
import sys
from pathlib import Path
import numpy as np
from dspark.kernels.host.build import build
from dspark.kernels.host.memory import Memory
from dspark.kernels.host.simulator import Schedule, Simulator
case, folder, index = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
memory = Memory()
out = memory.empty((160,), np.float32, "out")
for seed in (0, 1):
    simulator = Simulator(memory, Schedule(seed))
    library = build(case / "memory.cu", folder, "asan")
    simulator.launch(library, "local_array", (2,), (1,), [out, np.int32(index)])
    values = memory.array(np.zeros(640, "f4"), f"in{seed}")
    library = build(case / "copies.cu", folder, "asan")
    results = memory.empty((640,), np.float32, f"out{seed}")
    simulator.launch(library, "ring_good", (1,), (96,), [values, results, np.int32(7)], 512)
print("done")
"""


@pytest.mark.parametrize(("index", "clean"), [(3, True), (8, False)])
def test_address_sanitizer_finds_an_overrun_local_array(
    compiled: Path, index: int, clean: bool
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ASAN, CASES, compiled, str(index)],
        env={**os.environ, **environment("asan")},
        capture_output=True,
        text=True,
        check=False,
    )

    if clean:
        assert (0, "done\n", "") == (done.returncode, done.stdout, done.stderr)
    else:
        assert done.returncode != 0
        assert "AddressSanitizer: stack-buffer-overflow" in done.stderr
        assert "memory.cu" in done.stderr
