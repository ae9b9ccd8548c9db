"""rope.cu against float64: every head size, plain and YaRN rotations, pages in no order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dspark.kernels.arrays import DeviceArray
from dspark.kernels.host.report import Report
from dspark.runtime.backends.reference import ReferenceBackend
from dspark.runtime.backends.rope import Rope, inverse_frequencies
from tests.support.kernel_bench import HALF_ULP, Bench, Floats, rounded

ROWS, HEADS, KV_HEADS, EPS = 3, 5, 2, 1e-6
POSITIONS, PAGES, PAGE_SIZE = 11, 6, 4
AT = [10, 0, 7]
SLOTS = [21, 4, 11]
"""Places 1, 0 and 3 of the pages 5, 1 and 2."""
ROPES = {
    "plain": Rope(theta=1e6),
    "yarn": Rope(theta=1e4, kind="yarn", factor=4.0, original_max_position_embeddings=64),
}
NAN_BITS = 0xFFFF


def rotations(rope: Rope, size: int) -> Floats:
    """[positions, size]: the cosines of a position's pairs, and behind them the sines."""
    frequencies, scale = inverse_frequencies(rope, size)
    angles = np.arange(POSITIONS)[:, None] * frequencies
    return np.concatenate([np.cos(angles), np.sin(angles)], axis=1) * scale


class Case:
    """Inputs of one launch; `run` does it, and leaves `q`, `keys` and `values` behind."""

    def __init__(self, size: int, rope: str = "plain", heads: int = HEADS) -> None:
        random = np.random.default_rng(size)
        items = heads + 2 * KV_HEADS
        self.size, self.heads, self.rope = size, heads, ROPES[rope]
        self.x = rounded(random.normal(size=(ROWS, items, size)) * 3)
        self.q_weight, self.k_weight = rounded(random.normal(1, 0.2, (2, size)))

    def run(self, bench: Bench, grid_y: int = 1, at: list[int] = AT) -> Report:
        shape = PAGES, KV_HEADS, PAGE_SIZE, self.size
        self.q = bench.poison((ROWS, self.heads * self.size), "q")
        self.keys, self.values = bench.poison(shape, "keys"), bench.poison(shape, "values")
        return bench.launch(
            f"norm_rope_append_{self.size}",
            (ROWS, grid_y),
            32,
            bench.bf16(self.x.reshape(ROWS, -1), "x"),
            self.q,
            bench.bf16(self.q_weight, "q_weight"),
            bench.bf16(self.k_weight, "k_weight"),
            bench.f32(rotations(self.rope, self.size), "rotations"),
            bench.i32(at, "at"),
            bench.i32(SLOTS, "slots"),
            self.keys,
            self.values,
            *(ROWS, self.heads, KV_HEADS, POSITIONS, PAGES, PAGE_SIZE, EPS),
        )

    def expected(self) -> tuple[Floats, Floats]:
        """Queries [rows, heads, d] and keys [rows, kv heads, d]."""
        backend = ReferenceBackend()
        frequencies, scale = inverse_frequencies(self.rope, self.size)
        angles = np.array(AT)[:, None] * frequencies
        rotary: Any = np.cos(angles) * scale, np.sin(angles) * scale
        turned = (
            backend.rotate(backend.rms_norm(part, weight, EPS), rotary)
            for part, weight in (
                (self.x[:, : self.heads], self.q_weight),
                (self.x[:, self.heads : self.heads + KV_HEADS], self.k_weight),
            )
        )
        q, k = turned
        return q, k


def kept(bench: Bench, store: DeviceArray) -> Floats:
    """[rows, kv heads, d] at the slots of the case."""
    content = bench.floats(store)
    return np.stack([content[slot // PAGE_SIZE, :, slot % PAGE_SIZE] for slot in SLOTS])


def assert_turned(found: Floats, expected: Floats) -> None:
    # Three roundings, of numbers as large as the pair that is turned: turning can cancel.
    half = expected.shape[-1] // 2
    pair = np.hypot(expected[..., :half], expected[..., half:])
    limit = 3 * HALF_ULP * np.concatenate([pair, pair], axis=-1)
    assert (np.abs(found - expected) <= limit).all(), np.abs(found - expected).max()


# 9 heads, of which 4 fit into a block: in one block three times round, in two both twice or less.
@pytest.mark.parametrize("grid_y", [1, 2])
@pytest.mark.parametrize("size", [64, 80, 96, 128])
def test_queries_and_keys_are_turned_and_values_kept(size: int, grid_y: int, bench: Bench) -> None:
    case = Case(size)

    case.run(bench, grid_y)

    q, k = case.expected()
    assert_turned(bench.floats(case.q).reshape(q.shape), q)
    assert_turned(kept(bench, case.keys), k)
    np.testing.assert_array_equal(kept(bench, case.values), case.x[:, HEADS + KV_HEADS :])


def test_nothing_is_written_beside_the_slots(bench: Bench) -> None:
    case = Case(80)

    case.run(bench)

    for store in (case.keys, case.values):
        bits = bench.device.read(store)
        written = {
            page * PAGE_SIZE + place
            for page in range(PAGES)
            for place in range(PAGE_SIZE)
            if (bits[page, :, place] != NAN_BITS).any()
        }
        assert set(SLOTS) == written


def test_yarn_is_in_the_table(bench: Bench) -> None:
    case = Case(96, "yarn")
    assert not np.allclose(rotations(ROPES["yarn"], 96), rotations(Rope(theta=1e4), 96))

    case.run(bench)

    q, k = case.expected()
    assert_turned(bench.floats(case.q).reshape(q.shape), q)
    assert_turned(kept(bench, case.keys), k)


def test_a_drafts_context_has_no_queries(bench: Bench) -> None:
    case = Case(64, heads=0)

    case.run(bench)

    _, k = case.expected()
    assert_turned(kept(bench, case.keys), k)
    np.testing.assert_array_equal(kept(bench, case.values), case.x[:, KV_HEADS:])


@pytest.mark.parametrize("beyond", [POSITIONS, -1, 2**31 - 1])
def test_a_position_beyond_the_table_is_seen(beyond: int, plain_bench: Bench) -> None:
    case = Case(128)

    case.run(plain_bench, at=[AT[0], beyond, AT[2]])

    q, _ = case.expected()
    found = plain_bench.floats(case.q).reshape(q.shape)
    assert [False, True, False] == [bool(np.isnan(row).all()) for row in found]
    assert_turned(found[[0, 2]], q[[0, 2]])
    keys = kept(plain_bench, case.keys)
    assert [False, True, False] == [bool(np.isnan(row).all()) for row in keys]
    # A value is not turned, and whoever attends to it attends to the key first.
    np.testing.assert_array_equal(kept(plain_bench, case.values)[1], case.x[1, HEADS + KV_HEADS :])


def test_every_head_moves_once(plain_bench: Bench) -> None:
    case = Case(128)

    report = case.run(plain_bench)

    heads = (HEADS + 2 * KV_HEADS) * 128 * 2
    assert ROWS * heads == report.reads["x"].requested
    written = sum(report.writes[name].requested for name in ("q", "keys", "values"))
    assert ROWS * heads == written
