"""What a launch is handed is held against what the kernel takes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dspark.kernels.errors import AllocationError, LaunchError
from dspark.kernels.host.build import Parameter
from dspark.kernels.host.memory import Memory
from dspark.kernels.host.report import KernelFault
from dspark.kernels.host.simulator import Simulator
from tests.kernels.host.bench import Bench


def launch(bench: Bench, kernel: str, arguments: list[Any], memory: Memory) -> None:
    Simulator(memory).launch(bench.library("memory"), kernel, (1,), (1,), arguments)


def test_a_library_says_what_its_kernels_take(bench: Bench) -> None:
    pointer, integer = Parameter("p", 8), Parameter("i", 4)

    kernels = bench.library("memory").kernels

    assert kernels["read_at"] == (pointer, pointer, integer)


@pytest.mark.parametrize(
    ("argument", "words"),
    [
        (3, "argument 1 of `write_at` must be a numpy scalar of 4 bytes"),
        (
            np.int64(3),
            "argument 1 of `write_at` is int64, and the kernel takes an integer of 4 bytes",
        ),
        (np.float32(3), "argument 1 of `write_at` is float32, and the kernel takes an integer"),
        (np.zeros(1, "i4"), "argument 1 of `write_at` must be a numpy scalar"),
    ],
)
def test_a_number_of_another_kind_is_refused(bench: Bench, argument: Any, words: str) -> None:
    memory = Memory()
    out = memory.empty((4,), np.float32, "out")

    with pytest.raises(LaunchError, match=words):
        launch(bench, "write_at", [out, argument], memory)


@pytest.mark.parametrize(
    ("argument", "words"),
    [
        (np.zeros(4, "f4"), "argument 0 of `write_at` is an array outside the simulator's memory"),
        (np.int64(4096), "argument 0 of `write_at` must be an array, or None for null"),
    ],
)
def test_a_pointer_is_an_array_of_the_memory(bench: Bench, argument: Any, words: str) -> None:
    with pytest.raises(LaunchError, match=words):
        launch(bench, "write_at", [argument, np.int32(0)], Memory())


def test_a_view_is_a_pointer_into_its_array(bench: Bench) -> None:
    memory = Memory()
    out = memory.array(np.zeros(6, np.float32), "out")

    launch(bench, "write_at", [out[2:], np.int32(1)], memory)

    np.testing.assert_array_equal([0, 0, 0, 1, 0, 0], out)


def test_null_is_handed_on_and_may_not_be_used(bench: Bench) -> None:
    with pytest.raises(KernelFault, match=r"out-of-bounds: .* at address 0x8, where nothing is"):
        launch(bench, "write_at", [None, np.int32(2)], Memory())


def test_a_launch_without_an_argument_is_refused(bench: Bench) -> None:
    with pytest.raises(LaunchError, match="`write_at` takes 2 arguments, and 1 were given"):
        launch(bench, "write_at", [np.int32(0)], Memory())


def test_an_unknown_kernel_is_refused(bench: Bench) -> None:
    with pytest.raises(LaunchError, match="has no kernel `nowhere`"):
        launch(bench, "nowhere", [], Memory())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"block": 1025}, "no GPU has blocks of this size"),
        ({"grid": 0}, "no GPU has grids of this size"),
        ({"shared": 228 * 1024}, "no GPU has so much shared memory"),
    ],
)
def test_a_shape_that_no_gpu_has_is_a_finding(
    bench: Bench, options: dict[str, int], words: str
) -> None:
    (finding,) = bench.faults("memory.trapped", {"out": np.ones(1, "i4")}, **options)

    assert finding.kind == "launch"
    assert words in finding.text


def test_freed_memory_may_not_be_used(bench: Bench) -> None:
    memory = Memory()
    out = memory.empty((4,), np.float32, "out")
    launch(bench, "write_at", [out, np.int32(0)], memory)

    memory.free("out")

    with pytest.raises(LaunchError, match="outside the simulator's memory"):
        launch(bench, "write_at", [out, np.int32(0)], memory)


def test_what_runs_over_an_array_hits_no_other() -> None:
    memory = Memory()
    memory.empty((3, 5), np.float32, "made")
    (buffer,) = memory.buffers
    whole = buffer.storage.ctypes.data

    before = buffer.address - whole
    behind = whole + buffer.storage.nbytes - (buffer.address + buffer.size)

    assert 60 == buffer.size
    assert min(before, behind) >= 4096


def test_memory_starts_as_nan_and_is_aligned() -> None:
    memory = Memory()

    made = memory.empty((3, 5), np.float32, "made")

    assert np.isnan(made).all()
    assert made.ctypes.data % 256 == 0
    with pytest.raises(AllocationError, match="there is an array called `made` already"):
        memory.empty((1,), np.float32, "made")
