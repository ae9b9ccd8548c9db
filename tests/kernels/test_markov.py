"""markov.cu against float64 and the runtime's own heads, slot after slot as a round has it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dspark.kernels.arrays import DeviceArray
from dspark.kernels.host.report import KernelFault
from dspark.runtime.backends.reference import ReferenceBackend
from dspark.runtime.models.markov import GatedHead, RecurrentHead, VanillaHead
from dspark.runtime.models.weights import Weights
from tests.support.kernel_bench import HALF_ULP, Bench, Floats, rounded

# Ranks of which one vector of four, and one batch of sixteen vectors, are not full; vocabularies
# that end inside a tile; more tiles than all warps have together.
RANK, VOCAB, TARGET_VOCAB, ENTRIES, WIDTH = 136, 213, 301, 290, 72
SLOTS, ROWS, BLOCKS, BLOCK, SCALE = 3, 5, 3, 64, 0.5
COLUMNS = VOCAB + 3
assert RANK // 8 > 16
assert (VOCAB + 15) // 16 > 2 * BLOCKS * BLOCK // 32


@dataclass
class Inputs:
    """The tensors of a head, and what a block gave its requests."""

    w2: Floats
    table: Floats
    base: Floats
    hidden: Floats
    target_ids: np.ndarray
    anchors: np.ndarray

    @property
    def requests(self) -> int:
        return len(self.anchors)


def inputs(requests: int, seed: int = 40) -> Inputs:
    random = np.random.default_rng(seed)
    return Inputs(
        w2=rounded(random.normal(size=(VOCAB, RANK))),
        table=rounded(random.normal(size=(ENTRIES, RANK))),
        base=random.normal(size=(requests, SLOTS, COLUMNS)).astype(np.float32) * 4.0,
        hidden=rounded(random.normal(size=(requests, ROWS, WIDTH))),
        target_ids=np.sort(random.permutation(ENTRIES)[:VOCAB]),
        anchors=random.integers(0, ENTRIES, requests),
    )


class Walk:
    """The arrays of one walk on a device; `step` launches one slot of it."""

    def __init__(self, bench: Bench, given: Inputs, draws: list[int] | None = None) -> None:
        self.bench, self.given = bench, given
        requests = given.requests
        start = np.full((requests, SLOTS + 1), -7)
        start[:, 0] = given.anchors
        self.tokens = bench.i32(start, "tokens")
        unknown = np.full((requests, TARGET_VOCAB), -np.inf)
        self.logits = bench.f32(unknown, "logits")
        self.table = bench.bf16(given.table, "table")
        self._arrays = (
            bench.f32(given.base, "base"),
            bench.i32(given.target_ids, "target_ids"),
            bench.i32(draws or [0] * requests, "draws"),
            self.logits,
            bench.poison((BLOCKS, requests), "values", "f32"),
            bench.poison((BLOCKS, requests), "places", "i32"),
            bench.device.array(np.zeros(1, np.uint32), "u32", "arrived"),
        )
        self._w2 = bench.bf16(given.w2, "w2")

    def step(self, slot: int, latents: DeviceArray | None = None, blocks: int = BLOCKS) -> Any:
        requests = self.given.requests
        most = 8 if requests <= 8 else 16
        table = self.table if latents is None else latents
        return self.bench.launch(
            *(f"markov_step_{most}", blocks, BLOCK, self._w2, table, *self._arrays, self.tokens),
            *(requests, table.shape[0], RANK, VOCAB, TARGET_VOCAB, SLOTS, slot, COLUMNS, blocks),
            *(int(latents is not None), SCALE),
            smem=16 * most * ((RANK // 8 + 7) // 8 * 8 + 4),
        )

    def found(self) -> np.ndarray:
        return np.array(self.bench.ints(self.tokens))


def logits_of(given: Inputs, slot: int, latents: Floats) -> Floats:
    return given.base[:, slot, :VOCAB] * SCALE + latents @ given.w2.T


def likeliest(given: Inputs, logits: Floats) -> np.ndarray:
    """Target ids; the runners-up are far enough away for float32."""
    best = np.sort(logits, axis=-1)
    assert (best[:, -1] - best[:, -2] > 1e-3).all()
    return given.target_ids[logits.argmax(axis=-1)]


@pytest.mark.parametrize("requests", [5, 8, 11])
def test_a_vanilla_walk(bench: Bench, requests: int) -> None:
    given = inputs(requests)
    walk = Walk(bench, given)

    for slot in range(SLOTS):
        walk.step(slot)

    expected = np.array(given.anchors)
    for slot in range(SLOTS):
        latents, _ = VanillaHead().step(given.table[expected], given.hidden[:, slot], None)
        expected = likeliest(given, logits_of(given, slot, latents))
        assert expected.tolist() == walk.found()[:, slot + 1].tolist()
    assert given.anchors.tolist() == walk.found()[:, 0].tolist()


@pytest.mark.parametrize("requests", [3, 16])
def test_requests_that_draw_get_logits(bench: Bench, requests: int) -> None:
    """By target id, with what the draft does not know left as it was; the others get a token."""
    given = inputs(requests)
    draws = [request % 2 for request in range(requests)]
    walk = Walk(bench, given, draws)

    walk.step(0)

    latents = given.table[given.anchors]
    logits = logits_of(given, 0, latents)
    expected = np.full((requests, TARGET_VOCAB), -np.inf)
    expected[:, given.target_ids] = logits
    expected[::2] = -np.inf
    found = bench.device.read(walk.logits).astype(np.float64)
    np.testing.assert_array_equal(np.isfinite(found), np.isfinite(expected))
    known = np.isfinite(expected)
    # Sums of float32 in another order are off by the size of what was added up.
    scale = (np.abs(latents) @ np.abs(given.w2).T).max()
    np.testing.assert_allclose(found[known], expected[known], rtol=3e-7, atol=3e-7 * scale)
    tokens = np.where(np.array(draws) == 1, -7, likeliest(given, logits))
    assert tokens.tolist() == walk.found()[:, 1].tolist()


def test_of_equals_the_first(bench: Bench) -> None:
    """Tokens of one tile, of two warps and of two blocks, all alike."""
    given = inputs(4)
    for copy in (22, 150, 212):
        given.w2[copy], given.base[:, :, copy] = given.w2[20], given.base[:, :, 20] + 90
    given.base[:, :, 20] += 90
    walk = Walk(bench, given)

    walk.step(0)

    assert [given.target_ids[20]] * 4 == walk.found()[:, 1].tolist()


def test_what_is_no_number_is_no_choice_and_stays_with_its_request(bench: Bench) -> None:
    given = inputs(7)
    given.base[1, 0, 100], given.base[2, 0, 212] = np.nan, np.inf
    given.base[3, 0, :VOCAB] = -np.inf
    given.anchors[4], given.anchors[5] = -1, ENTRIES
    walk = Walk(bench, given)

    walk.step(0)
    walk.step(1)

    good = [0, 6]
    logits = given.base[good, 0, :VOCAB] * SCALE + given.table[given.anchors[good]] @ given.w2.T
    assert [False, True, True, True, True, True, False] == (walk.found()[:, 1] == -1).tolist()
    # A walk that broke stays broken.
    assert [False, True, True, True, True, True, False] == (walk.found()[:, 2] == -1).tolist()
    assert likeliest(given, logits).tolist() == walk.found()[good, 1].tolist()


def test_what_one_request_does_not_know_the_others_do(plain_bench: Bench) -> None:
    given = inputs(2)
    given.base[:, :, :VOCAB] = -np.inf
    given.base[0, :, 17], given.base[1, :, 204] = -3.0, 5.0
    walk = Walk(plain_bench, given)

    walk.step(0)

    assert given.target_ids[[17, 204]].tolist() == walk.found()[:, 1].tolist()


def test_w2_is_read_once(plain_bench: Bench) -> None:
    walk = Walk(plain_bench, inputs(8))

    report = walk.step(0)

    assert 2 * VOCAB * RANK == report.reads["w2"].requested
    assert 8 * 4 * VOCAB == report.reads["base"].requested
    # Each block has the table's rows of all requests, and each its word on every request.
    assert BLOCKS * 8 * 2 * RANK == report.reads["table"].requested
    assert 0 == report.writes["logits"].requested


def test_bytes_moved_are_hardly_more_than_the_weights(plain_bench: Bench) -> None:
    """One block in which all is shared: what is moved beyond W2 and the base logits is small."""
    given = inputs(1)
    walk = Walk(plain_bench, given)

    report = walk.step(0, blocks=1)

    moved = (*report.reads.values(), *report.writes.values())
    least = 2 * VOCAB * RANK + 4 * VOCAB + 2 * RANK
    assert sum(each.once for each in moved) < 1.05 * least


def test_too_little_shared_memory_is_found(plain_bench: Bench) -> None:
    given = inputs(8)
    walk = Walk(plain_bench, given)
    args = walk._w2, walk.table, *walk._arrays, walk.tokens

    with pytest.raises(KernelFault, match="out-of-bounds"):
        plain_bench.launch(
            *("markov_step_8", BLOCKS, BLOCK, *args, 8, ENTRIES, RANK, VOCAB, TARGET_VOCAB),
            *(SLOTS, 0, COLUMNS, BLOCKS, 0, SCALE),
            smem=16 * 8 * ((RANK // 8 + 7) // 8 * 8 + 4) - 16,
        )


AT = 1
"""The row of a block that drafts first, behind those that only carry the anchor."""


@dataclass
class Head:
    """Weights and bias of a gated or recurrent head."""

    weight: Floats
    bias: Floats


def head(outputs: int, width: int) -> Head:
    random = np.random.default_rng(41)
    weight = rounded(random.normal(size=(outputs, width)) / width**0.5)
    return Head(weight, rounded(random.normal(size=outputs) / 2))


def config() -> Any:
    return SimpleNamespace(markov_rank=RANK, hidden_size=WIDTH)


def gated(bench: Bench, walk: Walk, weights: Head, latents: DeviceArray, slot: int) -> None:
    given, number = walk.given, len(bench.driver.reports)
    args = (
        bench.bf16(weights.weight, f"weights {number}"),
        bench.bf16(weights.bias, f"bias {number}"),
        *(walk.table, bench.bf16(given.hidden, f"hidden {number}"), walk.tokens, latents),
    )
    bench.launch(
        *("markov_gated", (20, given.requests), BLOCK, *args),
        *(given.requests, ENTRIES, RANK, ROWS, AT + slot, WIDTH, SLOTS, slot),
    )


def test_a_gated_walk(bench: Bench) -> None:
    # 40 warps for the 136 values of each of 3 requests.
    given = inputs(3)
    weights = head(RANK, WIDTH + RANK)
    names = {
        "markov_head.gate_proj.weight": weights.weight,
        "markov_head.gate_proj.bias": weights.bias,
    }
    reference = GatedHead(ReferenceBackend(), config(), Weights(names))
    walk = Walk(bench, given)
    latents = bench.poison((3, RANK), "latents")

    expected = np.array(given.anchors)
    for slot in range(SLOTS):
        gated(bench, walk, weights, latents, slot)
        walk.step(slot, latents)

        wanted, _ = reference.step(given.table[expected], given.hidden[:, AT + slot], None)
        np.testing.assert_allclose(bench.floats(latents), wanted, rtol=1.01 * HALF_ULP, atol=1e-6)
        expected = likeliest(given, logits_of(given, slot, bench.floats(latents)))
        assert expected.tolist() == walk.found()[:, slot + 1].tolist()


def recurrent(
    bench: Bench, walk: Walk, weights: Head, states: list[DeviceArray], latents: Any, slot: int
) -> None:
    given, number = walk.given, len(bench.driver.reports)
    args = (
        bench.bf16(weights.weight, f"weights {number}"),
        bench.bf16(weights.bias, f"bias {number}"),
        *(walk.table, bench.bf16(given.hidden, f"hidden {number}"), walk.tokens),
        *(states[slot % 2], states[(slot + 1) % 2], latents),
    )
    bench.launch(
        *("markov_recurrent", (20, given.requests), BLOCK, *args),
        *(given.requests, ENTRIES, RANK, ROWS, AT + slot, WIDTH, SLOTS, slot),
    )


def test_a_recurrent_walk(bench: Bench) -> None:
    """The state before the first slot is NaN in memory, and still 0."""
    given = inputs(3)
    weights = head(3 * RANK, 2 * RANK + WIDTH)
    names = {
        "markov_head.joint_proj.weight": weights.weight,
        "markov_head.joint_proj.bias": weights.bias,
    }
    reference = RecurrentHead(ReferenceBackend(), config(), Weights(names))
    walk = Walk(bench, given)
    latents = bench.poison((3, RANK), "latents")
    states = [bench.poison((3, RANK), f"state {number}", "f32") for number in range(2)]

    expected = np.array(given.anchors)
    state = None
    for slot in range(SLOTS):
        recurrent(bench, walk, weights, states, latents, slot)
        walk.step(slot, latents)

        embedded, hidden = given.table[expected], given.hidden[:, AT + slot]
        wanted, state = reference.step(embedded, hidden, state)
        np.testing.assert_allclose(bench.floats(latents), wanted, rtol=1.01 * HALF_ULP, atol=1e-6)
        after = bench.device.read(states[(slot + 1) % 2])
        np.testing.assert_allclose(after, state, rtol=1e-5, atol=1e-6)
        expected = likeliest(given, logits_of(given, slot, bench.floats(latents)))
        assert expected.tolist() == walk.found()[:, slot + 1].tolist()


@pytest.mark.parametrize("kind", ["gated", "recurrent"])
def test_a_broken_walk_stays_broken(plain_bench: Bench, kind: str) -> None:
    bench = plain_bench
    given = inputs(3)
    given = replace(given, anchors=np.array([ENTRIES, given.anchors[1], -1]))
    walk = Walk(bench, given)
    latents = bench.poison((3, RANK), "latents")
    if kind == "gated":
        gated(bench, walk, head(RANK, WIDTH + RANK), latents, 0)
    else:
        states = [bench.poison((3, RANK), f"state {number}", "f32") for number in range(2)]
        recurrent(bench, walk, head(3 * RANK, 2 * RANK + WIDTH), states, latents, 0)
    walk.step(0, latents)

    assert [True, False, True] == np.isnan(bench.floats(latents)).all(axis=1).tolist()
    assert [True, False, True] == (walk.found()[:, 1] == -1).tolist()
