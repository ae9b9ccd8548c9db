"""Barriers of a block: what they count, and what the report says of those who wait in vain."""

from __future__ import annotations

import numpy as np
import pytest

from dspark.kernels.host.simulator import Schedule
from tests.kernels.host.bench import Bench, line


@pytest.mark.parametrize("threads", [96, 70])
def test_a_barrier_counts_for_the_whole_block(
    bench: Bench, schedule: Schedule, threads: int
) -> None:
    values = np.random.default_rng(6).integers(0, 9, threads).astype(np.int32)
    expected = [(values > 4).sum(), (values == 3).any(), (values >= 0).all()]

    bench.run(
        "barriers.counts",
        {"in": values, "out": np.full(3 * threads, -1, np.int32)},
        block=threads,
        schedule=schedule,
    )

    np.testing.assert_array_equal(np.repeat(expected, threads), bench.arrays["out"])


def test_a_barrier_waits_only_for_threads_that_still_run(bench: Bench, schedule: Schedule) -> None:
    bench.run(
        "barriers.early_exit",
        {"out": np.full(64, -1, np.int32)},
        np.int32(45),
        block=64,
        schedule=schedule,
    )

    np.testing.assert_array_equal([*range(44, -1, -1), *[-1] * 19], bench.arrays["out"])


def test_named_barriers_hand_stages_from_warp_to_warp(bench: Bench, schedule: Schedule) -> None:
    rounds = 5
    values = np.arange(rounds * 32, dtype=np.int32).reshape(rounds, 32)

    bench.run(
        "barriers.producer",
        {"in": values, "out": np.zeros_like(values)},
        np.int32(rounds),
        block=64,
        schedule=schedule,
    )

    np.testing.assert_array_equal(values[:, ::-1], bench.arrays["out"])


def test_two_barriers_that_meet_are_a_divergence(bench: Bench, schedule: Schedule) -> None:
    (finding,) = bench.faults(
        "barriers.divergent", {"out": np.zeros(64, np.int32)}, block=64, schedule=schedule
    )

    assert finding.kind == "divergence"
    kernel = int(line("barriers", "void divergent(").split(":")[1])
    places = [f"barriers.cu:{kernel + below}" for below in (2, 5)]
    assert places == [place for place in places if place in finding.text]


@pytest.mark.parametrize("mode", ["checked", "fast"])
def test_a_deadlock_says_who_waits_where(bench: Bench, schedule: Schedule, mode: str) -> None:
    (finding,) = bench.faults(
        "barriers.one_warp_waits",
        {"out": np.zeros(64, np.int32)},
        block=64,
        schedule=schedule,
        mode=mode,
    )

    assert finding.kind == "deadlock"
    assert "deadlock; block (0,0,0): thread" in finding.text
    place = line("barriers", "barrier_sync(5, 64)")
    assert f"of 64 threads) at {place}" in finding.text
    after = f"barriers.cu:{int(place.split(':')[1]) + 1}"
    assert f"threads 32-63 waiting for __syncthreads at {after}" in finding.text


@pytest.mark.parametrize(
    ("kernel", "words"),
    [
        ("other_counts", "barrier 2"),
        ("odd_count", "asks barrier 2 for 48 threads, no multiple of 32"),
        ("no_such_barrier", "names barrier 16; there are 1 to 15"),
    ],
)
def test_a_wrong_barrier_is_diagnosed(bench: Bench, kernel: str, words: str) -> None:
    (finding,) = bench.faults(f"barriers.{kernel}", {"out": np.zeros(64, np.int32)}, block=64)

    assert finding.kind == "barrier"
    assert words in finding.text


def test_a_block_that_waits_for_a_flag_nobody_sets_is_reported(bench: Bench) -> None:
    (finding,) = bench.faults("atomics.spins_alone", {"flag": np.zeros(1, np.uint32)}, block=2)

    assert finding.kind == "deadlock"
    assert "livelock" in finding.text
    assert line("atomics", "load_acquire(flag)") in finding.text
