"""best.cu against NumPy: the first of the largest, NaN above all."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dspark.kernels.host.simulator import Schedule
from tests.support.kernel_bench import Bench, Floats

BLOCK = 64


def best_of_blocks(bench: Bench, values: Floats, places: Floats) -> tuple[list[int], Floats]:
    rows, blocks = values.shape
    best, top = bench.poison((rows,), "best", "i32"), bench.poison((rows,), "top", "f32")
    args = bench.f32(values, "values"), bench.i32(places, "places"), best, top, rows, blocks
    bench.launch("best_of_blocks", rows, BLOCK, *args)
    return bench.ints(best), bench.device.read(top).astype(np.float64)


def test_best_of_blocks(bench: Bench) -> None:
    # Each thread goes round three times, and the last time not all of them.
    blocks = 2 * BLOCK + 9
    random = np.random.default_rng(1)
    values = random.integers(-40, 40, (5, blocks)).astype(np.float64)
    values[1, [3, 70, 131]] = 50.0
    values[2, -1] = 60.0
    values[3, 40:43] = np.nan
    places = np.tile(np.arange(blocks) * 10, (5, 1))

    best, top = best_of_blocks(bench, values, places)

    expected = 10 * values.argmax(axis=1)
    expected[3] = -1
    assert expected.tolist() == best
    np.testing.assert_array_equal(top, values.max(axis=1))


LOGITS = st.sampled_from([-np.inf, -2.0, -0.0, 0.0, 1.0, np.inf, np.nan])


@settings(max_examples=60, deadline=None)
@given(st.lists(LOGITS, min_size=1, max_size=150), st.integers(0, 4))
@example([-np.inf, -np.inf], 0)
@example([-2.0], 0)
def test_any_row_has_the_best_that_numpy_finds(
    compiled: Path, logits: list[float], seed: int
) -> None:
    values = np.array([logits])

    best, top = best_of_blocks(
        Bench(compiled, Schedule(seed)), values, np.arange(len(logits))[None]
    )

    place = int(values[0].argmax())
    assert [place if np.isfinite(values[0, place]) else -1] == best
    np.testing.assert_array_equal(top, values[0, [place]])


def test_of_equals_the_lower_place_is_best_wherever_it_is(plain_bench: Bench) -> None:
    values, places = np.ones((1, BLOCK + 30)), np.arange(BLOCK + 30)[::-1][None]

    best, _ = best_of_blocks(plain_bench, values, places)

    assert [0] == best
