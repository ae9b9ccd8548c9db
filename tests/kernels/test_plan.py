"""plan.cu against what the runtime itself says that rows see."""

from __future__ import annotations

import numpy as np
import pytest

from dspark.runtime.models.rows import Segment, _reads
from tests.support.kernel_bench import Bench

WIDEST = 2**31 - 1


def seen(
    bench: Bench,
    lengths: list[int],
    rows_of: list[int],
    *,
    width: int,
    positions: int,
    window: int,
    causal: bool,
    grid: int = 1,
) -> list[list[tuple[int, int]]]:
    requests, number = len(lengths), len(bench.driver.reports)
    begins = bench.poison((requests, width), f"begins {number}", "i32")
    ends = bench.poison((requests, width), f"ends {number}", "i32")
    args = bench.i32(lengths, f"lengths {number}"), bench.i32(rows_of, f"rows_of {number}")
    bench.launch(
        *("see_rows", grid, 32, *args, begins, ends),
        *(requests, width, positions, window, int(causal)),
    )
    found = zip(bench.ints(begins), bench.ints(ends), strict=True)
    return [list(zip(*each, strict=True)) for each in found]


def expected(
    length: int, rows: int, *, width: int, positions: int, window: int, causal: bool
) -> list[tuple[int, int]]:
    used = max(0, min(rows, positions - length))
    reads = _reads(Segment([0] * used, length, []), window or None, causal=causal)
    return [*zip(reads.begins, reads.ends, strict=True), *[(0, 0)] * (width - used)]


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("window", [0, 1, 4, 9, 40, WIDEST])
def test_rows_see_what_the_runtime_says(window: int, causal: bool, bench: Bench) -> None:
    # 77 rows for 32 threads: lengths around the window, full and partly used, one that is empty.
    width, positions = 11, 60
    random = np.random.default_rng(8)
    lengths = [0, 5, *random.integers(0, 49, 5).tolist()]
    rows_of = [11, 11, 0, *random.integers(1, 12, 4).tolist()]
    assert len(lengths) * width > 2 * 32
    assert min(rows_of[3:]) < width

    found = seen(
        bench, lengths, rows_of, width=width, positions=positions, window=window, causal=causal
    )

    assert [
        expected(*each, width=width, positions=positions, window=window, causal=causal)
        for each in zip(lengths, rows_of, strict=True)
    ] == found


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("window", [0, 2, 5])
def test_nothing_is_seen_at_the_last_position_or_beyond(
    window: int, causal: bool, bench: Bench
) -> None:
    # The first ends where the table does, the second beyond it, the third begins there.
    width, positions, lengths, rows_of = 4, 16, [12, 14, 16], [4, 4, 3]

    found = seen(
        bench, lengths, rows_of, width=width, positions=positions, window=window, causal=causal
    )

    assert [
        expected(*each, width=width, positions=positions, window=window, causal=causal)
        for each in zip(lengths, rows_of, strict=True)
    ] == found
    assert [[True] * 4, [True, True, False, False], [False] * 4] == [
        [end > 0 for _, end in rows] for rows in found
    ]


def test_a_row_that_is_not_in_use_sees_nothing(bench: Bench) -> None:
    found = seen(bench, [7, 9], [2, 0], width=3, positions=20, window=4, causal=False)

    assert [[(4, 9), (5, 9), (0, 0)], [(0, 0)] * 3] == found


def test_blocks_share_the_rows(bench: Bench) -> None:
    found = seen(
        bench, [3, 8, 1], [25, 25, 25], width=25, positions=40, window=0, causal=True, grid=2
    )

    assert [[(0, at + 1) for at in range(length, length + 25)] for length in (3, 8, 1)] == found


@pytest.mark.parametrize("grid", [1, 2])
@pytest.mark.parametrize("width", [5, 8])
def test_a_block_is_the_newest_token_and_masks(width: int, grid: int, bench: Bench) -> None:
    # At least 85 ids for 64 threads; a block narrower or wider than a row of tokens.
    requests, slots, mask = 17, 6, 999
    tokens = np.random.default_rng(9).integers(0, 500, (requests, slots + 1))
    ids = bench.poison((requests, width), "ids", "i32")

    args = bench.i32(tokens, "tokens"), ids, requests, slots, width, mask
    bench.launch("block_ids", grid, 32, *args)

    assert [[int(row[0])] + [mask] * (width - 1) for row in tokens] == bench.ints(ids)
