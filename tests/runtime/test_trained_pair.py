"""The pair that ships: identical text with every draft, and acceptance that a fault would lower.

Acceptance is compared within a test only, since the pair may be trained anew.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from dspark.runtime.backends.base import Array, KvStore
from dspark.runtime.calibration import VERIFY_ALL, calibration_error, fit_temperatures
from dspark.runtime.confidence import ConfidenceSchedule
from dspark.runtime.engine import Engine
from dspark.runtime.models.block_draft import Anchor, BlockDraft
from dspark.runtime.models.config import DraftConfig
from dspark.runtime.models.rows import Segment
from dspark.runtime.params import SamplingParams
from tests.runtime import trained
from tests.runtime.trained import DRAFTS, draft_config, engine, prompts, tensors

TOKENS = 40
GREEDY = SamplingParams(max_tokens=TOKENS, temperature=0.0, ignore_eos=True)
BLOCK = 7
FEW = list(prompts()[:8])


def ids(completions: Sequence[Any]) -> list[tuple[int, ...]]:
    return [completion.token_ids for completion in completions]


@pytest.fixture(scope="module")
def plain() -> list[tuple[int, ...]]:
    """What the target puts out alone, one prompt at a time."""
    alone = engine(None, max_batch=1, reuse_prefixes=False)
    out = [ids(alone.generate([prompt], GREEDY))[0] for prompt in FEW]
    assert len({token for text in out for token in text}) > 40, "these texts repeat too much"
    return out


@pytest.mark.parametrize("k", range(1, BLOCK + 1))
def test_c12_i6_h1_greedy_text_is_the_same_at_every_length(
    k: int, plain: list[tuple[int, ...]]
) -> None:
    drafted = engine("dspark", drafts=k)
    assert plain == ids(drafted.generate(FEW, GREEDY))
    counts = drafted.statistics.acceptance
    assert k == len(counts.accepted)
    assert 0 < counts.accepted[-1] < counts.verified[-1]


@pytest.mark.parametrize("batch", range(1, 9))
def test_l1_l3_greedy_text_is_the_same_in_every_batch(
    batch: int, plain: list[tuple[int, ...]]
) -> None:
    # 8 requests in batches of 3, 5, 6 and 7 leave smaller ones behind.
    assert plain == ids(engine("dspark", max_batch=batch).generate(FEW, GREEDY))


@pytest.mark.parametrize("name", DRAFTS)
def test_greedy_text_is_the_same_with_every_draft(name: str, plain: list[tuple[int, ...]]) -> None:
    drafted = engine(name)
    assert plain == ids(drafted.generate(FEW, GREEDY))
    assert drafted.statistics.acceptance.tokens_per_round > 1.2


@pytest.mark.parametrize("chunk", [1, 7, 32, 33])
def test_h3_greedy_text_is_the_same_for_every_prefill_chunk(
    chunk: int, plain: list[tuple[int, ...]]
) -> None:
    few = FEW[:3]
    assert plain[:3] == ids(engine("dspark", prefill_tokens=chunk).generate(few, GREEDY))


def test_i8_prefix_hits_change_neither_text_nor_acceptance(plain: list[tuple[int, ...]]) -> None:
    reusing = engine("dspark", page_size=16)
    cold = reusing.generate(FEW, GREEDY)
    warm = reusing.generate(FEW, GREEDY)
    assert plain == ids(cold) == ids(warm)
    for before, after in zip(cold, warm, strict=True):
        assert 0 == before.statistics.cached_tokens
        hit = (before.statistics.prompt_tokens - 1) // 16 * 16
        assert hit == after.statistics.cached_tokens > 0
        assert before.statistics.acceptance == after.statistics.acceptance


def test_l1_i9_requests_join_leave_and_are_cancelled(plain: list[tuple[int, ...]]) -> None:
    random = np.random.default_rng(1)
    mixed = engine("dspark", max_batch=3, pages=24, page_size=16, prefill_tokens=20)
    asked: dict[int, tuple[int, int]] = {}
    got: dict[int, list[int]] = {}
    waiting = [(number % 8, int(random.integers(1, TOKENS))) for number in range(20)]
    cancelled = 0
    while waiting or mixed.busy:
        if waiting and random.random() < 0.5:
            number, length = waiting.pop()
            params = dataclasses.replace(GREEDY, max_tokens=length)
            k = int(random.integers(0, BLOCK + 1))
            asked[mixed.submit(FEW[number], params, drafts=k)] = number, length
        for event in mixed.step():
            got.setdefault(event.request_id, []).extend(event.token_ids)
        if random.random() < 0.05 and mixed._requests:
            request_id = int(random.choice(list(mixed._requests)))
            mixed.cancel(request_id)
            del asked[request_id]
            cancelled += 1
    assert cancelled > 0
    assert len(asked) > 10
    for request_id, (number, length) in asked.items():
        assert plain[number][:length] == tuple(got[request_id])
    assert 0 == mixed.pages_held


class Scripted(BlockDraft):
    """The trained draft with its mind made up: row r of call n gets `right(n)[r]` tokens right."""

    def __init__(self, truths: Sequence[Sequence[int]], right: Sequence[tuple[int, ...]]) -> None:
        super().__init__(
            trained.target(), draft_config("dflash"), tensors("dflash"), max_length=trained.LENGTH
        )
        self._truths, self._right, self.calls = truths, right, 0
        self._anchors: Sequence[Anchor] = ()

    def block(self, anchors: Sequence[Anchor], store: KvStore) -> Array:
        self._anchors, self.calls = anchors, self.calls + 1
        return super().block(anchors, store)

    def base_logits(self, hidden: Array) -> Array:
        logits = super().base_logits(hidden).reshape(len(self._anchors), -1, len(self.target_ids))
        for row, anchor in enumerate(self._anchors):
            truth = self._truths[row]
            assert truth[anchor.position] == anchor.token, "the rows have changed places"
            for slot in range(logits.shape[1]):
                place = anchor.position + 1 + slot
                token = truth[place] if place < len(truth) else 0
                wrong = slot >= self._right[(self.calls - 1) % len(self._right)][row]
                logits[row, slot] = 0
                logits[row, slot, (token + wrong) % logits.shape[2]] = 9
        return logits.flatten(0, 1)


def test_i1_i3_every_pair_of_accept_patterns() -> None:
    patterns = list(itertools.product(range(BLOCK + 1), repeat=2))
    random = np.random.default_rng(3)
    patterns = [patterns[int(index)] for index in random.permutation(len(patterns))]
    # Each row accepts every number equally often, so both get through all pairs at the same time.
    length = sum(first + 1 for first, _ in patterns) + 2
    params = dataclasses.replace(GREEDY, max_tokens=length)
    pair = FEW[:2]
    expected = ids(engine(None, reuse_prefixes=False).generate(pair, params))
    truths = [[*prompt, *text] for prompt, text in zip(pair, expected, strict=True)]
    draft = Scripted(truths, patterns)
    scripted = Engine(trained.target(), draft, engine(None).config)
    completions = scripted.generate(pair, params)
    assert expected == ids(completions)
    assert len(patterns) == draft.calls
    for completion in completions:
        counts = completion.statistics.acceptance
        # How often at least n + 1 were accepted: the patterns with more than n, in 8 of 8 rows.
        assert [8 * (BLOCK - n) for n in range(BLOCK)] == counts.accepted


def test_h4_every_committed_token_is_the_choice_of_a_pass_of_one_row(
    plain: list[tuple[int, ...]],
) -> None:
    # Each token of the drafted text, fed alone, and how far it is from the likeliest.
    model = trained.target()
    texts = ids(engine("dspark").generate(FEW[:2], GREEDY))
    gaps: list[float] = []
    for prompt, text in zip(FEW, texts, strict=False):
        store = model.new_store(1, len(prompt) + TOKENS)
        passed = model.forward([Segment(prompt, 0, [0])], store)
        hidden = model.backend.take(passed.hidden, [len(prompt) - 1])
        for place, token in enumerate(text, len(prompt)):
            row = model.backend.host(model.logits(hidden))[0]
            gaps.append(float(row.max() - row[token]))
            hidden = model.forward([Segment([token], place, [0])], store).hidden
    assert 2 * TOKENS == len(gaps)
    assert 0 == sum(gap > 0 for gap in gaps)
    assert plain[:2] == texts


@pytest.mark.parametrize("name", DRAFTS)
def test_bfloat16_text_is_the_same_with_and_without_a_draft(name: str) -> None:
    few = FEW[:4]
    alone = engine(None, dtype="bfloat16", max_batch=1).generate(few, GREEDY)
    assert ids(alone) == ids(engine(name, dtype="bfloat16").generate(few, GREEDY))


def test_k5_the_same_seed_gives_the_same_text_in_any_batch() -> None:
    params = [
        SamplingParams(max_tokens=24, temperature=1.0, top_p=0.95, seed=seed, ignore_eos=True)
        for seed in range(6)
    ]
    few = FEW[:6]
    alone = [
        ids(engine("dspark", max_batch=1).generate([prompt], one))[0]
        for prompt, one in zip(few, params, strict=True)
    ]
    assert alone == ids(engine("dspark", max_batch=6, prefill_tokens=50).generate(few, params))
    backwards = engine("dspark", max_batch=4).generate(few[::-1], params[::-1])
    assert alone == ids(backwards)[::-1]
    assert 6 == len(set(alone))


class LateFeatures(BlockDraft):
    """Every position gets the features of the one before it."""

    def extend(self, features: Array, segments: Sequence[Segment], store: KvStore) -> None:
        super().extend(features.roll(1, 0), segments, store)


class LateBlock(BlockDraft):
    """The block is turned as if it stood one position further on."""

    def block(self, anchors: Sequence[Anchor], store: KvStore) -> Array:
        right = self.rope_table
        self.rope_table = tuple(part.roll(-1, 0) for part in right)
        try:
            return super().block(anchors, store)
        finally:
            self.rope_table = right


class DeafMarkov(BlockDraft):
    """Every slot is conditioned on the anchor, not on the draft before it."""

    def embedded(self, previous: Sequence[int]) -> Array | None:
        del previous
        return super().embedded(self._anchored)

    def block(self, anchors: Sequence[Anchor], store: KvStore) -> Array:
        self._anchored = [anchor.token for anchor in anchors]
        return super().block(anchors, store)


def drafts_held(kind: type[BlockDraft] = BlockDraft, name: str = "dspark", **changes: Any) -> float:
    """How many drafts a round of this kind of draft gets right, at temperature 0."""
    config: DraftConfig = dataclasses.replace(draft_config(name), **changes)
    draft = kind(
        trained.target(taps=config.target_layer_ids),
        config,
        tensors(name),
        max_length=trained.LENGTH,
    )
    counted = Engine(trained.target(taps=config.target_layer_ids), draft, engine(None).config)
    counted.generate(prompts()[:16], GREEDY)
    return counted.statistics.acceptance.tokens_per_round - 1


@pytest.fixture(scope="module")
def right() -> float:
    return drafts_held()


@pytest.mark.parametrize("shift", [-1, 1])
def test_c2_taps_off_by_one_lower_acceptance(shift: int, right: float) -> None:
    taps = tuple(tap + shift for tap in draft_config("dspark").target_layer_ids)
    assert drafts_held(target_layer_ids=taps) < 0.98 * right


@pytest.mark.parametrize("name", ["dspark", "dspark-speculators"])
def test_c6_the_other_packagings_slots_lower_acceptance(name: str) -> None:
    own = draft_config(name).sample_from_anchor
    assert own == (name == "dspark")
    assert drafts_held(name=name, sample_from_anchor=not own) < 0.8 * drafts_held(name=name)


def test_c8_features_one_position_late_lower_acceptance(right: float) -> None:
    assert drafts_held(LateFeatures) < 0.8 * right


def test_c8_a_block_one_position_late_lowers_acceptance(right: float) -> None:
    assert drafts_held(LateBlock) < 0.9 * right


def test_c15_a_chain_conditioned_on_the_anchor_lowers_acceptance(right: float) -> None:
    assert drafts_held(DeafMarkov) < 0.8 * right


def test_a_schedule_fitted_to_the_draft_changes_no_text(plain: list[tuple[int, ...]]) -> None:
    observed = engine("dspark", schedule=VERIFY_ALL)
    rounds = observed.record_confidence()
    assert plain == ids(observed.generate(FEW, GREEDY))
    counts = observed.statistics.acceptance
    assert len(rounds) == sum(1 for one in rounds if one.chances) > 20
    assert sum(counts.accepted) == sum(one.accepted for one in rounds)
    temperatures = fit_temperatures(rounds)
    assert BLOCK == len(temperatures) == len(calibration_error(rounds))
    curve = ((1, 100.0), (8, 60.0), (64, 20.0))
    scheduled = engine("dspark", schedule=ConfidenceSchedule(curve, temperatures))
    assert plain == ids(scheduled.generate(FEW, GREEDY))
    assert sum(scheduled.statistics.acceptance.verified) < sum(counts.verified)
