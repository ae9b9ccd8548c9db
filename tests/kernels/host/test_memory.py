"""Bounds, alignment, poison, and how much was moved."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dspark.kernels.host.report import Traffic
from dspark.kernels.host.simulator import Schedule
from tests.kernels.host.bench import Bench, line


def numbers(count: int) -> dict[str, np.ndarray[Any, Any]]:
    return {"in": np.arange(count, dtype=np.float32), "out": np.zeros(4, np.float32)}


@pytest.mark.parametrize("index", [0, 9])
def test_the_ends_of_a_buffer_may_be_read(bench: Bench, index: int) -> None:
    bench.run("memory.read_at", numbers(10), np.int32(index), block=1)

    assert bench.arrays["out"][0] == index


@pytest.mark.parametrize(("index", "place"), [(10, 40), (-1, -4), (500, 2000)])
def test_a_read_beyond_a_buffer_is_out_of_bounds(bench: Bench, index: int, place: int) -> None:
    (finding,) = bench.faults("memory.read_at", numbers(10), np.int32(index), block=1)

    assert finding.kind == "out-of-bounds"
    assert finding.text == (
        f"thread (0,0,0) of block (0,0,0) reads 4 bytes at byte {place} of `in`, which has 40"
        f" at {line('memory', 'void read_at')}"
    )


def test_a_write_beyond_a_buffer_is_not_done(bench: Bench) -> None:
    (finding,) = bench.faults(
        "memory.write_at", {"out": np.zeros(4, np.float32)}, np.int32(4), block=1
    )

    assert finding.kind == "out-of-bounds"
    assert "writes 4 bytes at byte 16 of `out`, which has 16" in finding.text
    everything = bench.arrays["out"].base  # with the guards on both sides
    assert everything is not None
    assert 16 == (everything != 0xFF).sum()


def test_a_null_pointer_is_out_of_bounds(bench: Bench) -> None:
    (finding,) = bench.faults("memory.write_at", {"out": np.zeros(1, "f4")}, np.int32(1 << 30))

    assert finding.kind == "out-of-bounds"
    assert "where nothing is" in finding.text


@pytest.mark.parametrize(("index", "fits"), [(8, True), (12, False)])
def test_a_vector_must_lie_inside_whole(bench: Bench, index: int, fits: bool) -> None:
    arguments = ("memory.wide_read_at", numbers(14), np.int32(index))
    if fits:
        bench.run(*arguments, block=1)
        assert bench.arrays["out"][0] == index + index + 3
        return

    (finding,) = bench.faults(*arguments, block=1)

    assert finding.kind == "out-of-bounds"
    assert "of `in`, which has 56" in finding.text


def test_a_misaligned_vector_is_diagnosed(bench: Bench) -> None:
    (finding,) = bench.faults("memory.wide_read_at", numbers(14), np.int32(2), block=1)

    assert finding.kind == "misaligned"
    assert "float4" in finding.text
    assert "at byte 8 of `in`, which is not aligned to 16 bytes" in finding.text
    assert line("memory", "reinterpret_cast<const float4*>(in + index)") in finding.text


def test_shared_memory_has_ends_too(bench: Bench) -> None:
    out = {"out": np.zeros(1, np.float32)}
    bench.run("memory.shared_write_at", out, np.int32(7), block=1, shared=32)

    (finding,) = bench.faults("memory.shared_write_at", out, np.int32(8), block=1, shared=32)

    assert finding.kind == "out-of-bounds"
    assert "at byte 32 of dynamic shared memory, which has 32" in finding.text


def test_an_array_in_static_shared_memory_has_ends(bench: Bench) -> None:
    out = {"out": np.zeros(1, np.float32)}
    bench.run("memory.static_write_at", out, np.int32(7), block=1)

    (finding,) = bench.faults("memory.static_write_at", out, np.int32(8), block=1)

    assert finding.kind == "out-of-bounds"
    assert "uses element 8 of a 'float [8]'" in finding.text


@pytest.mark.parametrize("mode", ["checked", "fast"])
def test_what_nobody_wrote_is_nan(bench: Bench, mode: str) -> None:
    # Twice, since the second block must not see what the first one left.
    for _ in range(2):
        bench.run("memory.unwritten", {"out": np.zeros(3, "f4")}, block=1, shared=16, mode=mode)

        assert np.isnan(bench.arrays["out"]).all()


@pytest.mark.parametrize("mode", ["checked", "fast"])
def test_every_block_has_shared_memory_of_its_own(
    bench: Bench, schedule: Schedule, mode: str
) -> None:
    blocks = 5
    expected = np.zeros((3, blocks, 32), np.int32)
    for (turn, block, lane), _ in np.ndenumerate(expected):
        other = block * 100 + 31 - lane + turn
        expected[turn, block, lane] = other * 1000 + other

    bench.run(
        "memory.own_shared",
        {"out": np.zeros_like(expected)},
        grid=blocks,
        shared=128,
        schedule=schedule,
        mode=mode,
    )

    np.testing.assert_array_equal(expected, bench.arrays["out"])


def test_traffic_is_counted_for_each_buffer(bench: Bench) -> None:
    rows, blocks, threads = 70, 2, 32
    report = bench.run(
        "memory.traffic",
        {
            "weights": np.zeros((blocks, rows, 8), np.uint16),
            "scale": np.zeros(1, np.float32),
            "out": np.zeros((blocks * threads, 8), np.float32),
        },
        np.int32(rows),
        grid=blocks,
        block=threads,
    )

    weights = blocks * rows * 16
    assert report.reads["weights"] == Traffic(weights, weights, weights)
    assert report.reads["scale"].by_block == 32 * blocks
    assert report.reads["scale"].once == 32
    assert report.writes["out"] == Traffic(64 * 4, 64 * 32, 64 * 32)
    assert report.writes["weights"] == Traffic(0, 0, 0)


@pytest.mark.parametrize(
    ("kernel", "value", "words"),
    [
        ("overflow", 2**30, "has a sum that does not fit its signed type"),
        ("shift", 32, "shifts by more bits than there are"),
        ("divide", 0, "divides by zero"),
    ],
)
def test_undefined_arithmetic_is_diagnosed(
    bench: Bench, kernel: str, value: int, words: str
) -> None:
    out = {"out": np.full(2, 2**30, np.int32)}
    (finding,) = bench.faults(f"memory.{kernel}", out, np.int32(value), block=1)

    assert finding.kind == "undefined"
    assert words in finding.text
    assert line("memory", f"void {kernel}(") in finding.text


def test_a_trap_is_reported(bench: Bench) -> None:
    (finding,) = bench.faults("memory.trapped", {"out": np.zeros(1, "i4")})

    assert finding.kind == "trap"
    assert line("memory", "__trap()") in finding.text


def test_constants_and_local_arrays_are_no_finding(bench: Bench) -> None:
    bench.run("memory.local_array", {"out": np.zeros(1, "f4")}, np.int32(3), block=1)

    values = [[1, 2, 4, 8][i % 4] + i for i in range(8)]
    assert bench.arrays["out"][0] == sum(values) - values[3] + 0.5
