"""What NVIDIA's driver is asked, and what is made of its answers."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest

from dspark.kernels.machine import Gpu, Machine, look
from tests.support.fake_driver import H200, build, install, uninstall


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("driver"))


def test_no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    uninstall(monkeypatch)

    trouble = "there is no NVIDIA driver (`libcuda-is-not-here.so` is not installed)"
    assert Machine(None, (), trouble) == look()


def test_gpus(monkeypatch: pytest.MonkeyPatch, library: Path) -> None:
    install(monkeypatch, library, H200, "120:NVIDIA RTX:32:20:10", driver=13020)

    found = look()

    assert ((13, 2), None) == (found.driver, found.trouble)
    assert (
        Gpu(0, "NVIDIA H200", 90, 150_000_000_000, 149_000_000_000, 232_448),
        Gpu(1, "NVIDIA RTX", 120, 32, 20, 10),
    ) == found.gpus
    # The contexts that memory was asked in were given back.
    assert 0 == ctypes.CDLL(str(library)).fake_contexts()


def test_a_driver_without_a_gpu(monkeypatch: pytest.MonkeyPatch, library: Path) -> None:
    install(monkeypatch, library, driver=12040)

    assert Machine((12, 4), (), "the NVIDIA driver sees no GPU") == look()


def test_a_driver_that_does_not_start(monkeypatch: pytest.MonkeyPatch, library: Path) -> None:
    install(monkeypatch, library, H200, failing="cuInit")

    trouble = "the NVIDIA driver does not start: cuInit says CUDA_ERROR_UNKNOWN"
    assert Machine((13, 0), (), trouble) == look()


def test_a_context_is_given_back_after_a_failure(
    monkeypatch: pytest.MonkeyPatch, library: Path
) -> None:
    install(monkeypatch, library, H200, failing="cuMemGetInfo")

    trouble = look().trouble
    assert trouble is not None
    assert "cuMemGetInfo_v2 says CUDA_ERROR_UNKNOWN" in trouble
    assert 0 == ctypes.CDLL(str(library)).fake_contexts()


def test_an_error_without_a_name(monkeypatch: pytest.MonkeyPatch, library: Path) -> None:
    install(monkeypatch, library, H200, failing="cuDriverGetVersion")

    found = look()
    assert found.driver is None
    assert found.trouble is not None
    assert found.trouble.endswith("is no NVIDIA driver: cuDriverGetVersion says error 7")


def test_a_library_that_is_no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DSPARK_LIBCUDA", "libm.so.6")

    found = look()
    assert found.trouble is not None
    assert found.trouble.startswith("`libm.so.6` is no NVIDIA driver: ")
