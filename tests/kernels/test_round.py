"""round.cu against the runtime's own acceptance and paging, and whole rounds of both together."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from dspark.kernels.arrays import DeviceArray
from dspark.runtime.acceptance import accept_greedy
from dspark.runtime.models.rows import Segment
from tests.support.kernel_bench import Bench

NOTHING = -1


def accepted(
    bench: Bench, tokens: np.ndarray, best: np.ndarray, rows_of: list[int], block: int = 64
) -> tuple[DeviceArray, DeviceArray]:
    requests, width = tokens.shape
    number = len(bench.driver.reports)
    out = bench.poison((requests, width), f"out {number}", "i32")
    kept = bench.poison((requests,), f"kept {number}", "i32")
    grid = -(-requests * 32 // block)
    args = (
        bench.i32(tokens, f"tokens {number}"),
        bench.i32(best, f"best {number}"),
        bench.i32(rows_of, f"rows_of {number}"),
    )
    bench.launch("accept_greedy", grid, block, *args, out, kept, requests, width)
    return out, kept


def test_accept_greedy_is_the_runtimes(bench: Bench) -> None:
    # Drafts for three warps' worth of votes; requests for two blocks and a half.
    requests, width = 5, 70
    random = np.random.default_rng(6)
    best = random.integers(0, 50, (requests, width))
    tokens = np.concatenate([random.integers(0, 50, (requests, 1)), best[:, :-1]], axis=1)
    rows_of = [70, 66, 40, 1, 33]
    for request, wrong in enumerate([None, 64, 31, None, None]):
        if wrong is not None:
            tokens[request, wrong + 1] = 50
    assert (tokens[1, 65], best[1, 64]) != (best[1, 64],) * 2

    out, kept = accepted(bench, tokens, best, rows_of)

    expected = [
        accept_greedy(tokens[request, 1:rows].tolist(), best[request].tolist())
        for request, rows in enumerate(rows_of)
    ]
    assert [70, 65, 32, 1, 33] == [len(row) for row in expected] == bench.ints(kept)
    padded = [row + [NOTHING] * (width - len(row)) for row in expected]
    assert padded == bench.ints(out)


def test_a_request_that_only_fills_up_gets_nothing(bench: Bench) -> None:
    tokens = np.array([[3, 4], [3, 4]])

    out, kept = accepted(bench, tokens, np.array([[4, 5], [4, 5]]), [0, 2], block=32)

    assert [0, 2] == bench.ints(kept)
    assert [[NOTHING] * 2, [4, 5]] == bench.ints(out)


def test_what_was_no_number_agrees_with_nothing(bench: Bench) -> None:
    # A draft that was none, a choice that was none, and both in one place.
    tokens = np.array([[3, NOTHING, 6], [3, 4, 6], [3, NOTHING, 6]])
    best = np.array([[5, 6, 7], [NOTHING, 6, 7], [NOTHING, 6, 7]])

    out, kept = accepted(bench, tokens, best, [3, 3, 3], block=32)

    assert [1, 1, 1] == bench.ints(kept)
    assert [[5, -1, -1], [-1, -1, -1], [-1, -1, -1]] == bench.ints(out)


def placed(
    bench: Bench,
    lengths: list[int],
    rows_of: list[int],
    tables: list[list[int]],
    width: int,
    page_size: int,
    scratch: int,
) -> tuple[list[list[int]], list[list[int]]]:
    requests, number = len(lengths), len(bench.driver.reports)
    at = bench.poison((requests, width), f"at {number}", "i32")
    slots = bench.poison((requests, width), f"slots {number}", "i32")
    args = (
        bench.i32(lengths, f"lengths {number}"),
        bench.i32(rows_of, f"rows_of {number}"),
        bench.i32(tables, f"tables {number}"),
    )
    bench.launch(
        *("place_rows", 1, 32, *args, at, slots),
        *(requests, width, len(tables[0]), page_size, scratch),
    )
    return bench.ints(at), bench.ints(slots)


def test_rows_stand_behind_what_is_committed(bench: Bench) -> None:
    # 36 rows for 32 threads. The anchor's position is the number of committed tokens.
    page_size, width, scratch = 4, 12, 800
    tables, lengths = [[9, 2, 7, 5], [3, 8, 1, 6], [4, 0, 11, 10]], [3, 0, 4]

    at, slots = placed(bench, lengths, [12, 12, 12], tables, width, page_size, scratch)

    for request, (length, pages) in enumerate(zip(lengths, tables, strict=True)):
        assert list(range(length, length + width)) == at[request]
        assert Segment([0] * width, length, pages).slots(page_size) == slots[request]


def test_rows_without_a_place_get_one_each_that_nobody_reads(bench: Bench) -> None:
    # Request 0 brings 2 of 3 rows, request 1 none, request 2 more than its pages hold.
    at, slots = placed(bench, [5, 7, 7], [2, 0, 3], [[1, 0], [3, 2], [4, 5]], 3, 4, 100)

    assert [[5, 6, 0], [0, 0, 0], [7, 0, 0]] == at
    assert [[1, 2, 102], [103, 104, 105], [23, 107, 108]] == slots


def test_commit_cuts_back_by_row(bench: Bench) -> None:
    requests, width = 35, 3
    random = np.random.default_rng(7)
    kept = random.integers(0, width + 1, requests)
    out = random.integers(0, 99, (requests, width))
    lengths, tokens = random.integers(0, 50, requests), random.integers(100, 199, (requests, width))
    new_lengths, new_tokens = bench.i32(lengths, "lengths"), bench.i32(tokens, "tokens")
    assert 0 in kept

    args = bench.i32(out, "out"), bench.i32(kept, "kept"), new_lengths, new_tokens
    bench.launch("commit_round", 1, 32, *args, requests, width)

    expected = tokens.copy()
    for request, count in enumerate(kept):
        if count:
            expected[request, 0] = out[request, count - 1]
    assert (lengths + kept).tolist() == bench.ints(new_lengths)
    assert expected.tolist() == bench.ints(new_tokens)


@pytest.mark.parametrize("pattern", list(product(range(5), repeat=2)))
def test_every_accept_pattern_of_two_requests(pattern: tuple[int, int], plain_bench: Bench) -> None:
    """Four drafts, of which each request accepts its own number: nobody follows the other."""
    drafts, width, page_size = 4, 5, 4
    lengths = [6, 11]
    best = np.array([[21, 22, 23, 24, 25], [31, 32, 33, 34, 35]])
    tokens = np.concatenate([[[20], [30]], best[:, :drafts]], axis=1)
    for request, count in enumerate(pattern):
        tokens[request, count + 1 :] += 50
    bench = plain_bench

    out, kept = accepted(bench, tokens, best, [width, width])
    on_device, newest = bench.i32(lengths, "lengths"), bench.i32(tokens, "newest")
    bench.launch("commit_round", 1, 32, out, kept, on_device, newest, 2, width)

    expected = [
        accept_greedy(row[1:].tolist(), own.tolist()) for row, own in zip(tokens, best, strict=True)
    ]
    assert [count + 1 for count in pattern] == [len(row) for row in expected] == bench.ints(kept)
    assert [old + len(row) for old, row in zip(lengths, expected, strict=True)] == bench.ints(
        on_device
    )
    assert [row[-1] for row in expected] == [row[0] for row in bench.ints(newest)]
    tables = [[0, 1, 2, 3, 4, 10], [9, 8, 7, 6, 5, 11]]
    at, slots = placed(bench, bench.ints(on_device), [width] * 2, tables, width, page_size, 99)
    for request, pages in enumerate(tables):
        begin = lengths[request] + len(expected[request])
        assert begin == at[request][0]
        assert Segment([0] * width, begin, pages).slots(page_size) == slots[request]
