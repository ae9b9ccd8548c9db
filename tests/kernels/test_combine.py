"""combine.cu alone: what rows got from many splits, most of which they did not see."""

from __future__ import annotations

import numpy as np
import pytest

from dspark.kernels.host.report import Report
from tests.support.attention_case import SIZES
from tests.support.kernel_bench import HALF_ULP, Bench, Floats

HEADS, SPLITS, SPLIT = 3, 70, 64
SEEN = [(5, 70 * 64), (64 * 3 - 1, 64 * 35), (64 * 2, 64 * 34), (0, 65), (0, 0)]
"""Rows of 70 splits, 33, 32, two and none: three times round, twice, once."""


class Shares:
    """What the splits of a pass left, in float64 and on a device; NaN where a row saw nothing."""

    def __init__(self, size: int, seen: list[tuple[int, int]]) -> None:
        random = np.random.default_rng(size)
        shape = len(seen), HEADS, SPLITS
        self.size, self.seen = size, seen
        self.partial = random.normal(size=(*shape, size)).astype(np.float32)
        # Maxima far apart and in no order; logarithms of 2, as the kernel has them.
        self.most = (random.normal(size=shape) * 6).astype(np.float32)
        self.most[0, 0, :32] += 300  # beside which nothing behind them counts
        self.weight = random.uniform(1, 64, shape).astype(np.float32)
        for row, (begin, end) in enumerate(seen):
            unseen = np.ones(SPLITS, bool)
            unseen[begin // SPLIT : -(-end // SPLIT)] = False
            for each in (self.partial, self.most, self.weight):
                each[row, :, unseen] = np.nan

    def run(self, bench: Bench, positions: int = SPLITS * SPLIT) -> Report:
        rows = len(self.seen)
        self.out = bench.poison((rows, HEADS, self.size), "out")
        return bench.launch(
            f"combine_splits_{self.size}",
            -(-rows * HEADS // 2),
            64,
            bench.f32(self.partial, "partial"),
            bench.f32(np.stack([self.most, self.weight], axis=-1), "stats"),
            bench.i32([begin for begin, _ in self.seen], "begins"),
            bench.i32([end for _, end in self.seen], "ends"),
            self.out,
            *(rows, HEADS, positions, SPLITS, SPLIT),
        )

    def expected(self, row: int) -> Floats:
        """[heads, d]; for a row that sees something."""
        begin, end = self.seen[row]
        part = slice(begin // SPLIT, -(-end // SPLIT))
        most = self.most[row, :, part].astype(np.float64)
        factors = 2.0 ** (most - most.max(axis=1, keepdims=True))
        total: Floats = np.einsum("hs,hsd->hd", factors, self.partial[row, :, part])
        return total / (factors * self.weight[row, :, part]).sum(axis=1)[:, None]


@pytest.mark.parametrize("size", SIZES)
def test_splits_add_up(size: int, bench: Bench) -> None:
    shares = Shares(size, SEEN)

    shares.run(bench)

    found = bench.floats(shares.out)
    for row in range(4):
        expected = shares.expected(row)
        np.testing.assert_allclose(found[row], expected, rtol=1.05 * HALF_ULP, atol=1e-6)
    np.testing.assert_array_equal(found[4], 0.0)


def test_a_row_of_one_split_is_left_alone(plain_bench: Bench) -> None:
    shares = Shares(80, [(64, 128), (63, 128), (3, 7)])

    shares.run(plain_bench)

    found = plain_bench.floats(shares.out)
    assert [True, False, True] == np.isnan(found).all(axis=(1, 2)).tolist()
    np.testing.assert_allclose(found[1], shares.expected(1), rtol=1.05 * HALF_ULP, atol=1e-6)


def test_a_row_does_not_depend_on_the_others(plain_bench: Bench) -> None:
    together, alone = Shares(80, SEEN), Shares(80, SEEN)
    together.run(plain_bench)
    bits = plain_bench.device.read(together.out)
    for name in ("partial", "most", "weight"):
        setattr(alone, name, getattr(alone, name)[1:2])
    alone.seen = SEEN[1:2]
    other = Bench(plain_bench.driver.folder, plain_bench.driver.schedule)

    alone.run(other)

    np.testing.assert_array_equal(other.device.read(alone.out)[0], bits[1])


def test_a_split_of_no_number_is_seen(plain_bench: Bench) -> None:
    shares = Shares(80, SEEN[:2])
    shares.weight[1, 2, 20] = np.nan
    shares.partial[0, 1, 69, 79] = np.inf

    shares.run(plain_bench)

    found = plain_bench.floats(shares.out)
    assert np.isnan(found[1, 2]).all()
    assert np.isinf(found[0, 1, 79])
    assert 1 + 80 == (~np.isfinite(found)).sum()


def test_a_row_beyond_the_page_table_is_seen(plain_bench: Bench) -> None:
    shares = Shares(80, [(0, 65), (0, 129)])

    shares.run(plain_bench, positions=128)

    assert [False, True] == np.isnan(plain_bench.floats(shares.out)).all(axis=(1, 2)).tolist()


def test_a_share_moves_once(plain_bench: Bench) -> None:
    shares = Shares(80, SEEN[:2])

    report = shares.run(plain_bench)

    moved = HEADS * (70 + 33)
    assert moved * 80 * 4 == report.reads["partial"].requested
    assert moved * 8 == report.reads["stats"].requested
    assert 2 * HEADS * 80 * 2 == report.writes["out"].requested
