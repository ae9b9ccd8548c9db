"""attention.cu and combine.cu against float64: what rows see, and what they must not notice."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.attention_case import SIZES, Case, Pass, Range, ranges
from tests.support.kernel_bench import Bench

WINDOW = 70
"""Wider than a tile and a split, and no multiple of a page."""

BLOCKS = {
    "decode": ranges(150, 1),
    "verify": ranges(126, 5),
    "draft": ranges(126, 5, causal=False),
    "sliding": ranges(126, 5, WINDOW),
    "sliding draft": ranges(126, 5, WINDOW, causal=False),
}


# A request of three splits beside one that fits into a tile and leaves two rows unused.
@pytest.mark.parametrize("kind", BLOCKS)
@pytest.mark.parametrize("size", SIZES)
def test_every_kind_of_block(size: int, kind: str, plain_bench: Bench) -> None:
    one = Pass(Case(size), [BLOCKS[kind], ranges(9, 3)])

    one.run(plain_bench)

    one.assert_right()


@pytest.mark.parametrize("size", SIZES)
def test_any_order_of_threads_and_blocks(size: int, bench: Bench) -> None:
    # 25 queries of a key head, in two tiles of 16.
    one = Pass(Case(size, heads=10, split=128), [BLOCKS["sliding draft"], ranges(9, 3)])

    one.run(bench)

    one.assert_right()


@pytest.mark.parametrize("length", [1, 2, 23, 24, 25, 63, 64, 65, 127, 128, 129, 192])
@pytest.mark.parametrize("rows", [1, 4])
def test_borders_of_pages_tiles_and_splits(length: int, rows: int, plain_bench: Bench) -> None:
    one = Pass(Case(80), [ranges(max(0, length - rows), min(rows, length))])
    assert length == max(end for _, end in one.seen[0])

    one.run(plain_bench)

    one.assert_right()


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("window", [1, 4, 63, 64, 65, 80, 128, 129, 130, 131, 500])
def test_borders_of_windows(window: int, causal: bool, plain_bench: Bench) -> None:
    one = Pass(Case(80), [ranges(127, 4, window, causal=causal)])

    one.run(plain_bench)

    one.assert_right()


@pytest.mark.parametrize("split", [64, 128, 192, 256])
def test_splits_of_several_tiles(split: int, plain_bench: Bench) -> None:
    one = Pass(Case(80, split=split), [ranges(180, 5), ranges(100, 2)])

    one.run(plain_bench)

    one.assert_right()


def test_rows_need_have_nothing_in_common(plain_bench: Bench) -> None:
    # A gap that nobody sees, a row inside one strand, one that begins where another ends.
    seen: list[Range] = [(70, 75), (0, 3), (130, 192), (75, 129), (64, 128)]
    one = Pass(Case(80), [seen, seen[1:3]])

    one.run(plain_bench)

    one.assert_right()


def test_a_request_that_only_fills_up_the_batch(plain_bench: Bench) -> None:
    one = Pass(Case(80), [[], ranges(90, 5), []])

    one.run(plain_bench)

    one.assert_right()


# Splits that end where the table does, and such as reach beyond it.
@pytest.mark.parametrize("split", [64, 128])
@pytest.mark.parametrize("wrong", [(0, 193), (-1, 5), (9, 8), (-5, -2), (0, 2**31 - 1)])
def test_a_range_that_is_none_is_seen(wrong: Range, split: int, plain_bench: Bench) -> None:
    one = Pass(Case(80, split=split), [ranges(100, 4)])
    arrays = one.place_on(plain_bench)
    for name, value in zip(("begins", "ends"), wrong, strict=True):
        bounds = one.content()[name]
        bounds[0, 4] = value
        plain_bench.device.write(arrays[name], bounds)
    # Not NaN beforehand: who writes nothing must be seen too.
    plain_bench.device.write(arrays["out"], np.zeros(arrays["out"].shape, np.uint16))

    one.launch(plain_bench, arrays)

    found = plain_bench.floats(arrays["out"])[0]
    assert np.isnan(found[4]).all()
    assert np.isfinite(found[:4]).all()


def test_a_range_beyond_the_splits_is_seen(plain_bench: Bench) -> None:
    class Fewer(Case):
        splits = 2

    one = Pass(Fewer(80, width=2), [ranges(127, 2)])
    assert one.case.splits * one.case.split == 128

    one.run(plain_bench)

    assert [False, True] == np.isnan(one.out[0, :2]).all(axis=(1, 2)).tolist()


# ------------------------------------------------------------------- what a row must not notice


@pytest.mark.parametrize("size", SIZES)
def test_a_row_is_the_same_bits_in_any_company(size: int, plain_bench: Bench) -> None:
    rows = ranges(124, 5)
    together = Pass(Case(size, split=128), [rows, ranges(30, 3)])
    together.run(plain_bench)

    for row, one in enumerate(rows):
        alone = Pass(Case(size, split=128, width=1, table_pages=6), [[one]])
        alone.run(plain_bench)
        np.testing.assert_array_equal(alone.bits[0, 0], together.bits[0, row])


def test_a_row_is_the_same_bits_in_any_geometry(plain_bench: Bench) -> None:
    few = Case(80, heads=10, split=128)
    # 80 queries: two warps share 16 of them, not four. And a device with room for two stages.
    many = Case(80, heads=10, split=128, width=16, most_shared=55_000)
    assert (3, 2) == (few.geometry(2).stages, many.geometry(2).stages)
    assert few.geometry(2).block / 2 < many.geometry(2).block < few.geometry(2).block * 16 / 5
    seen = [ranges(124, 5), ranges(3, 2)]
    one, other = Pass(few, seen), Pass(many, [[*seen[0], *ranges(0, 11)], seen[1]])

    one.run(plain_bench)
    other.run(plain_bench)

    one.assert_right()
    other.assert_right()
    np.testing.assert_array_equal(one.bits[0], other.bits[0, :5])
    np.testing.assert_array_equal(one.bits[1, :2], other.bits[1, :2])


def test_a_request_is_the_same_bits_beside_others(plain_bench: Bench) -> None:
    alone = Pass(Case(80), [ranges(120, 5)], names=[7])
    beside = Pass(Case(80), [ranges(0, 2), ranges(61, 5), ranges(120, 5)], names=[1, 2, 7])

    alone.run(plain_bench)
    beside.run(plain_bench)

    np.testing.assert_array_equal(alone.bits[0], beside.bits[2])


# One dimension for each word of a vector.
@pytest.mark.parametrize("dim", [0, 3, 12, 78])
@pytest.mark.parametrize("strange", [np.nan, np.inf, -np.inf])
def test_a_value_that_is_no_number_stays_with_those_who_see_it(
    strange: float, dim: int, plain_bench: Bench
) -> None:
    # Rows begin at 56 to 60 and end behind 124 to 128: not all of them see these positions.
    rows, positions = ranges(124, 5, WINDOW - 1), (57, 127)
    case = Case(80, split=64 if dim else 192)
    clean, marred = Pass(case, [rows]), Pass(case, [rows])
    for position in positions:
        page, place = marred.place(0, position)
        marred.values[page, 1, place, dim] = strange

    clean.run(plain_bench)
    marred.run(plain_bench)

    expected = clean.out.copy()
    for row, (begin, end) in enumerate(rows):
        if any(begin <= position < end for position in positions):
            expected[0, row, 2:, dim] = strange
    assert 1 == np.isfinite(expected[0]).all(axis=(1, 2)).sum()
    np.testing.assert_array_equal(marred.out, expected)


def test_an_infinite_value_of_no_weight(plain_bench: Bench) -> None:
    """0 times infinity is no number, whether a row is alone or beside one that sees less."""
    case = Case(80, split=128, width=2)
    together, alone = Pass(case, [[(0, 90), (3, 90)]]), Pass(case, [[(0, 90)]])
    for one in (together, alone):
        one.q[:], one.keys[:] = 1.0, 0.0
        # The first key decides: the others of its strand get no weight, and the other strands none
        # beside it, though they have some among themselves.
        page, place = one.place(0, 0)
        one.keys[page, :, place] = 100.0
        for position, dim in ((1, 5), (20, 6)):
            page, place = one.place(0, position)
            one.values[page, :, place, dim] = np.inf
        one.run(plain_bench)

    assert [5, 6] == np.flatnonzero(np.isnan(alone.out[0, 0]).all(axis=0)).tolist()
    np.testing.assert_array_equal(alone.out[0, 0], together.out[0, 0])
    assert np.isposinf(together.out[0, 1, :, 6]).all()
    assert np.isfinite(together.out[0, 1, :, :6]).all()


def test_a_key_that_is_no_number_stays_with_those_who_see_it(plain_bench: Bench) -> None:
    rows = ranges(124, 5)
    clean, marred = (Pass(Case(80), [rows]) for _ in range(2))
    page, place = marred.place(0, 127)
    marred.keys[page, 0, place, 7] = np.nan

    clean.run(plain_bench)
    marred.run(plain_bench)

    np.testing.assert_array_equal(marred.bits[0, :3], clean.bits[0, :3])
    assert np.isnan(marred.out[0, 3:, :2]).all()
    np.testing.assert_array_equal(marred.bits[0, 3:, 2:], clean.bits[0, 3:, 2:])


def test_a_query_that_is_no_number_stays_in_its_head(plain_bench: Bench) -> None:
    clean, marred = (Pass(Case(80), [ranges(124, 5)]) for _ in range(2))
    marred.q[0, 2, 1, 63] = np.nan

    clean.run(plain_bench)
    marred.run(plain_bench)

    assert np.isnan(marred.out[0, 2, 1]).all()
    clean.bits[0, 2, 1] = marred.bits[0, 2, 1]
    np.testing.assert_array_equal(marred.bits, clean.bits)


def test_scores_of_any_size(plain_bench: Bench) -> None:
    one = Pass(Case(80), [ranges(150, 3)])
    # One key decides, then thousands apart in either direction: the maximum moves late, or early.
    one.q *= np.array([1.0, 300.0, -300.0, 1e-3, 1.0])[:, None, None]

    one.run(plain_bench)

    one.assert_right()


def test_weights_make_up_one(plain_bench: Bench) -> None:
    one = Pass(Case(80, split=128), [ranges(150, 3)])
    one.values[:] = 1.0
    arrays = one.place_on(plain_bench)

    one.launch(plain_bench, arrays)

    mixed, weights = (plain_bench.device.read(arrays[name])[0, :3] for name in ("partial", "stats"))
    np.testing.assert_allclose(mixed, np.broadcast_to(weights[..., 1:], mixed.shape), rtol=1e-6)


# width * heads / kv_heads of 1, 16, 17, 64, 80 and 128: part of a tile, all warps there are.
@pytest.mark.parametrize(
    ("width", "heads", "kv_heads"),
    [(1, 3, 3), (16, 2, 2), (1, 17, 1), (16, 4, 1), (16, 10, 2), (16, 8, 1)],
)
def test_shapes_of_heads(width: int, heads: int, kv_heads: int, plain_bench: Bench) -> None:
    case = Case(80, heads=heads, kv_heads=kv_heads, width=width)
    one = Pass(case, [ranges(70, width)])

    one.run(plain_bench)

    one.assert_right()
