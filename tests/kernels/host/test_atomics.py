"""Atomics: what each does, and that the order of many is the schedule's."""

from __future__ import annotations

import numpy as np
import pytest

from dspark.kernels.host.simulator import Schedule
from tests.kernels.host.bench import Array, Bench


def test_every_atomic_does_what_the_programming_guide_says(
    bench: Bench, schedule: Schedule
) -> None:
    grid, block = 3, 40
    threads = grid * block
    words = np.array([2**32 - 1, 0, 0, 0, 5, 0, 0], np.uint32)

    bench.run(
        "atomics.all_kinds",
        {
            "ints": np.zeros(4, np.int32),
            "words": words,
            "floats": np.zeros(1, np.float32),
            "longs": np.zeros(1, np.uint64),
        },
        grid=grid,
        block=block,
        schedule=schedule,
    )

    total = sum(range(threads))
    np.testing.assert_array_equal([total, -total, 1 - threads, threads - 1], bench.arrays["ints"])
    flips = np.bitwise_xor.reduce([1 << i % 32 for i in range(threads)])
    got = bench.arrays["words"]
    assert [0, 2**32 - 1, flips] == got[:3].tolist()
    assert threads % 7 == got[3]
    assert (5 - threads) % 7 == got[4]
    assert 1 <= got[5] <= threads
    assert got[6] == 77
    assert bench.arrays["floats"] == threads / 2
    assert bench.arrays["longs"] == threads << 33


def test_a_misaligned_atomic_is_diagnosed(bench: Bench) -> None:
    (finding,) = bench.faults("atomics.misaligned", {"bytes": np.zeros(8, np.uint8)}, block=1)

    assert finding.kind == "misaligned"
    assert "does an atomic on 4 bytes" in finding.text


def order(bench: Bench, seed: int, mode: str = "checked") -> Array:
    bench.run(
        "atomics.order",
        {"next": np.zeros(1, np.int32), "out": np.zeros(4 * 32, np.int32)},
        grid=4,
        schedule=Schedule(seed, resident=2),
        mode=mode,
    )
    return bench.arrays["out"]


def test_seed_0_is_in_order(bench: Bench) -> None:
    bench.run(
        "atomics.order",
        {"next": np.zeros(1, np.int32), "out": np.zeros(4 * 32, np.int32)},
        grid=4,
    )

    np.testing.assert_array_equal(range(128), bench.arrays["out"])


def test_a_seed_names_one_order_and_others_differ(bench: Bench) -> None:
    orders = [order(bench, seed).tolist() for seed in range(1, 7)]

    assert orders == [order(bench, seed).tolist() for seed in range(1, 7)]
    assert len({tuple(each) for each in orders}) == len(orders)
    assert all(sorted(each) == list(range(128)) for each in orders)


@pytest.mark.parametrize("mode", ["checked", "fast"])
@pytest.mark.parametrize("seed", range(4))
def test_a_seed_interrupts_threads_that_do_not_wait(bench: Bench, seed: int, mode: str) -> None:
    arrays = {"next": np.zeros(1, np.int32), "gaps": np.zeros(256, np.int32)}

    bench.run("atomics.steps", arrays, block=256, schedule=Schedule(seed), mode=mode)

    assert (seed == 0) == (bench.arrays["gaps"] == 1).all()
