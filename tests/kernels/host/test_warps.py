"""Shuffles, votes and reductions, and the ways to get their masks wrong."""

from __future__ import annotations

import numpy as np
import pytest

from dspark.kernels.host.simulator import Schedule
from tests.kernels.host.bench import Bench, line

LANES = range(32)


@pytest.mark.parametrize("width", [32, 16, 8, 1])
def test_shuffles_follow_the_programming_guide(
    bench: Bench, schedule: Schedule, width: int
) -> None:
    values = np.random.default_rng(1).integers(-1000, 1000, 32).astype(np.int32)
    expected = np.zeros((4, 32), np.int32)
    for lane in LANES:
        first = lane // width * width
        up, down, across = lane - 3, lane + 3, lane ^ 5
        expected[0, lane] = values[first + (lane * 7 + 3) % width]
        expected[1, lane] = values[up if up >= first else lane]
        expected[2, lane] = values[down if down < first + width else lane]
        expected[3, lane] = values[across if across < first + width else lane]

    bench.run(
        "warps.shuffles",
        {"in": values, "out": np.zeros(128, np.int32)},
        np.int32(width),
        schedule=schedule,
    )

    np.testing.assert_array_equal(expected.ravel(), bench.arrays["out"])


def test_eight_bytes_are_shuffled_whole_and_a_warp_is_summed(bench: Bench) -> None:
    values = np.random.default_rng(2).standard_normal(32)

    bench.run(
        "warps.wide_shuffles",
        {"in": values, "out": np.zeros(32), "sums": np.zeros(64, np.float32)},
    )

    np.testing.assert_array_equal(values[::-1], bench.arrays["out"])
    np.testing.assert_allclose(values.sum(), bench.arrays["sums"][:32], rtol=1e-5)
    assert {np.float32(values.max())} == set(bench.arrays["sums"][32:])


def test_votes_see_the_lanes_of_their_mask_alone(bench: Bench, schedule: Schedule) -> None:
    values = np.random.default_rng(4).integers(0, 32, 32).astype(np.int32)
    values[6], values[7] = 8, 7  # an odd lane has the 7, and no even one
    values[values == 7] = np.where(np.arange(32)[values == 7] % 2, 7, 9)
    halves = [[lane for lane in LANES if lane % 2 == odd] for odd in (0, 1)]
    expected = np.zeros((7, 32), np.uint32)
    for lane in LANES:
        half = halves[lane % 2]
        limit = 10 if lane % 2 else 20
        expected[0, lane] = sum(1 << other for other in half if values[other] > limit)
        expected[1, lane] = any(values[other] == 7 for other in half)
        expected[2, lane] = all(values[other] != 7 for other in half)
        alike = [other for other in LANES if values[other] % 5 == values[lane] % 5]
        expected[3, lane] = sum(1 << other for other in alike)
        expected[4, lane] = sum(1 << other for other in half)
        expected[5, lane] = 1
    assert {0, 1} == set(expected[1])

    bench.run("warps.votes", {"in": values, "out": np.ones(224, np.uint32)}, schedule=schedule)

    np.testing.assert_array_equal(expected.ravel(), bench.arrays["out"])


def test_reductions_know_signed_from_unsigned(bench: Bench) -> None:
    values = np.random.default_rng(5).integers(-(2**20), 2**20, 32).astype(np.int32)
    words = values.view(np.uint32)
    assert values.min() < 0 < values.max()
    expected = [
        values.sum(dtype=np.int32),
        values.min(),
        values.max(),
        words.min().view(np.int32),
        words.max().view(np.int32),
        np.bitwise_and.reduce(values),
        np.bitwise_or.reduce(values),
        np.bitwise_xor.reduce(values),
    ]

    bench.run("warps.reductions", {"in": values, "out": np.zeros(256, np.int32)})

    np.testing.assert_array_equal(np.repeat(expected, 32), bench.arrays["out"])


def test_a_lane_that_ended_is_not_waited_for_and_brings_nan(
    bench: Bench, schedule: Schedule
) -> None:
    expected = np.arange(32, dtype=np.float32)
    expected[[3, 9]] = np.nan, -5

    bench.run("warps.after_an_exit", {"out": np.full(32, -5, np.float32)}, schedule=schedule)

    np.testing.assert_array_equal(expected, bench.arrays["out"])


@pytest.mark.parametrize("mode", ["checked", "fast"])
@pytest.mark.parametrize(
    ("kernel", "words", "place"),
    [
        ("outside_its_mask", "is lane 0, which its mask fffffffe leaves out", "0xfffffffeu, 1, 1"),
        ("other_masks", "mask fffffff0", "__shfl_sync(mask, 1, 20)"),
        ("other_operations", "different warp operations under the mask ffffffff", None),
    ],
)
def test_a_wrong_mask_is_diagnosed(
    bench: Bench, schedule: Schedule, kernel: str, words: str, place: str | None, mode: str
) -> None:
    (finding,) = bench.faults(
        f"warps.{kernel}", {"out": np.zeros(32, np.int32)}, schedule=schedule, mode=mode
    )

    assert finding.kind == "mask"
    assert words in finding.text
    if place is not None:
        assert line("warps", place) in finding.text


def test_lanes_that_do_not_come_are_a_deadlock(bench: Bench, schedule: Schedule) -> None:
    (finding,) = bench.faults(
        "warps.half_a_warp", {"out": np.zeros(33, np.int32)}, schedule=schedule
    )

    assert finding.kind == "deadlock"
    waits = "threads 0-15 waiting for the lanes ffffffff in a shuffle at "
    assert waits + line("warps", "threadIdx.x < 16) out[threadIdx.x]") in finding.text
    assert "polling at " + line("warps", "(out + 32)) == 0) __nanosleep") in finding.text
