"""Compiling without a GPU, and keeping what was compiled by everything that went into it."""

from __future__ import annotations

from pathlib import Path

import pytest

from dspark.kernels import cubins, toolkit
from dspark.kernels.cubins import ARCHITECTURES, Compiler, kernel_cache, open_compiler
from dspark.kernels.errors import CompileError, ToolkitMissing
from dspark.kernels.nvrtc import Nvrtc
from dspark.kernels.toolkit import Toolkit, find_program, find_toolkit

KERNEL = '#include "own.cuh"\nextern "C" __global__ void f(int* x /* [1] */) { *x = VALUE; }\n'


@pytest.fixture
def compiler(tmp_path: Path) -> Compiler:
    found = find_toolkit()
    return Compiler(Nvrtc(found.nvrtc), found, tmp_path / "cache")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "own.cuh").write_text('#include "deeper.cuh"\n', encoding="utf-8")
    (tmp_path / "deeper.cuh").write_text("#define VALUE 1\n", encoding="utf-8")
    file = tmp_path / "small.cu"
    file.write_text(KERNEL.replace('"own.cuh"', f'"{tmp_path}/own.cuh"'), encoding="utf-8")
    return file


def test_every_architecture_is_known_to_the_compiler(compiler: Compiler) -> None:
    assert set() == set(ARCHITECTURES) - set(compiler.nvrtc.architectures)


def test_machine_code_is_made_and_kept(compiler: Compiler, source: Path) -> None:
    first = compiler.cubin(source, 90)
    when = first.stat().st_mtime_ns

    assert first.read_bytes().startswith(b"\x7fELF")
    assert first.name.startswith("small-sm_90-")
    assert first == compiler.cubin(source, 90)
    assert when == first.stat().st_mtime_ns
    assert [first] == list(compiler.cache.iterdir())


@pytest.mark.parametrize("changed", ["small.cu", "own.cuh", "deeper.cuh"])
def test_a_change_anywhere_is_compiled_anew(
    changed: str, compiler: Compiler, source: Path, tmp_path: Path
) -> None:
    before = compiler.cubin(source, 80)
    file = tmp_path / changed
    file.write_text(file.read_text(encoding="utf-8") + "// another\n", encoding="utf-8")

    assert before != compiler.cubin(source, 80)


def test_flags_architecture_and_version_are_part_of_the_key(
    compiler: Compiler, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = {compiler.cubin(source, 80), compiler.cubin(source, 90)}
    monkeypatch.setattr(cubins, "FLAGS", (*cubins.FLAGS, "-DOTHER"))
    known.add(compiler.cubin(source, 80))
    monkeypatch.setattr(Nvrtc, "version", (99, 0))
    known.add(compiler.cubin(source, 80))

    assert 4 == len(known)


def test_a_mistake_comes_with_the_compilers_words(compiler: Compiler, source: Path) -> None:
    source.write_text('extern "C" __global__ void f() { nothing(); }', encoding="utf-8")

    with pytest.raises(CompileError) as caught:
        compiler.cubin(source, 80)

    assert str(caught.value).startswith("`small.cu` does not compile: NVRTC_ERROR_COMPILATION\n")
    assert 'identifier "nothing" is undefined' in str(caught.value)
    assert not compiler.cache.exists()


def test_an_architecture_that_is_none(compiler: Compiler, source: Path) -> None:
    with pytest.raises(CompileError, match="invalid value for --gpu-architecture"):
        compiler.cubin(source, 1)


def test_a_cache_that_cannot_be_written(compiler: Compiler, source: Path, tmp_path: Path) -> None:
    blocked = tmp_path / "blocked"
    blocked.write_text("a file", encoding="utf-8")
    elsewhere = Compiler(compiler.nvrtc, compiler.toolkit, blocked / "cache")

    with pytest.raises(CompileError, match="name another folder in DSPARK_KERNEL_CACHE"):
        elsewhere.cubin(source, 80)


def test_where_compiled_kernels_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DSPARK_KERNEL_CACHE", "/somewhere")
    assert Path("/somewhere") == kernel_cache()
    monkeypatch.delenv("DSPARK_KERNEL_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/cache")
    assert Path("/cache/dspark/kernels") == kernel_cache()
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/somebody")
    assert Path("/home/somebody/.cache/dspark/kernels") == kernel_cache()


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine with no toolkit; what it has lies in the folder that is returned."""
    monkeypatch.setattr(toolkit.sys, "path", [str(tmp_path)])
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "cuda"))
    monkeypatch.setenv("CUDA_PATH", "")
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(toolkit, "DEFAULT", tmp_path / "default")
    return tmp_path


def touch(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    return path


def test_without_a_toolkit(bare: Path) -> None:
    with pytest.raises(ToolkitMissing, match=r"NVRTC .* neither installed as a wheel"):
        open_compiler()
    touch(bare / "cuda/lib64/libnvrtc.so.13")
    with pytest.raises(ToolkitMissing, match=r"headers \(`cuda_bf16.h`\) are neither"):
        open_compiler()
    touch(bare / "cuda/include/cuda_bf16.h")
    with pytest.raises(CompileError, match="cannot be used as NVRTC"):
        open_compiler()
    assert find_program("cuobjdump") is None


def test_a_wheel_goes_before_an_installation(bare: Path) -> None:
    include = touch(bare / "default/include/cuda_bf16.h").parent
    last = touch(bare / "default/lib64/libnvrtc.so")
    assert Toolkit(last, include) == find_toolkit()
    installed = touch(bare / "cuda/lib64/libnvrtc.so.12")
    assert Toolkit(installed, include) == find_toolkit()
    newer = touch(bare / "cuda/lib64/libnvrtc.so.13")
    assert Toolkit(newer, include) == find_toolkit()
    wheel = touch(bare / "nvidia/cu13/lib/libnvrtc.so.13")
    assert Toolkit(wheel, include) == find_toolkit()
    program = touch(bare / "nvidia/cu13/bin/cuobjdump")
    assert program == find_program("cuobjdump")
