"""The corners of an engine: full pools, ends of pages, forbidden tokens, requests that go wrong."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
import torch

from dspark.runtime import timing
from dspark.runtime.engine import Engine
from dspark.runtime.errors import InvalidRequest, NonFiniteLogits
from dspark.runtime.models.config import DraftConfig
from dspark.runtime.params import SamplingParams
from tests.runtime.tiny import (
    DRAFT,
    PLAIN_DRAFT,
    TARGET,
    draft_model,
    draft_tensors,
    engine_config,
    make_engine,
    random_prompts,
    target_model,
)

GREEDY = SamplingParams(max_tokens=12, temperature=0.0)
PROMPTS = random_prompts(8)


@pytest.fixture(scope="module")
def plain() -> list[tuple[int, ...]]:
    engine = make_engine(False, max_batch=1, reuse_prefixes=False)
    return [engine.generate([prompt], GREEDY)[0].token_ids for prompt in PROMPTS]


def test_a_refused_prompt_leaves_nothing_of_the_others_behind() -> None:
    engine = make_engine()
    with pytest.raises(InvalidRequest, match="the prompt has no tokens"):
        engine.generate([PROMPTS[0], []], GREEDY)
    with pytest.raises(ValueError, match="zip"):
        engine.generate(PROMPTS[:2], [GREEDY])
    assert not engine.busy
    assert 0 == engine.pages_held


def test_an_engine_goes_on_after_a_target_that_computed_no_numbers(
    plain: list[tuple[int, ...]],
) -> None:
    target = target_model()
    engine = Engine(target, draft_model(target), engine_config())
    norm = target._norm
    target._norm = torch.full_like(norm, torch.nan)
    with pytest.raises(NonFiniteLogits):
        engine.generate(PROMPTS, GREEDY)
    assert not engine.busy
    assert 0 == engine.pages_held
    target._norm = norm
    assert plain == [c.token_ids for c in engine.generate(PROMPTS, GREEDY)]


@pytest.mark.parametrize("which", ["target", "draft"])
def test_g10_an_engine_longer_than_its_models_is_refused(which: str) -> None:
    target = target_model(max_length=60 if which == "target" else 512)
    draft = draft_model(target, max_length=60 if which == "draft" else 512)
    with pytest.raises(InvalidRequest) as refusal:
        Engine(target, draft, engine_config(max_length=61))
    expected = "`max_length` is 61, and the models were made for 60 positions"
    assert expected == str(refusal.value)
    engine = Engine(target, draft, engine_config(max_length=60))
    completion = engine.generate([[5] * 59], dataclasses.replace(GREEDY, ignore_eos=True))[0]
    assert ("length", 1) == (completion.finish_reason, len(completion.token_ids))


@pytest.mark.parametrize("drafts", range(DRAFT.block_size + 1))
def test_j6_pages_that_hold_the_text_and_no_block_more_are_enough(drafts: int) -> None:
    # Capacity 16, prompt 12: the block fits behind none of the last tokens.
    prompt = (PROMPTS[1] * 9)[:12]
    params = dataclasses.replace(GREEDY, max_tokens=4)
    expected = make_engine(False).generate([prompt], params)[0]
    engine = make_engine(pages=1, page_size=16, max_length=16)
    completion = engine.generate([prompt], params, drafts=drafts)[0]
    assert expected.token_ids == completion.token_ids
    skipped = completion.statistics.acceptance.draft_skipped["length"]
    # Anchors at 12 and 13 could have drafted; the one at 14 has nothing left to draft for.
    assert 2 * (drafts > 0) == skipped


def test_requests_wait_for_pages_and_come_in_order(plain: list[tuple[int, ...]]) -> None:
    # Room for two at most, with prefixes of each other that are kept and given up.
    engine = make_engine(pages=8, page_size=16)
    ids = [engine.submit(prompt, GREEDY) for prompt in PROMPTS]
    got: dict[int, list[int]] = {request_id: [] for request_id in ids}
    order = []
    most = 0
    while engine.busy:
        for event in engine.step():
            got[event.request_id] += event.token_ids
            if event.request_id not in order:
                order.append(event.request_id)
        most = max(most, len(engine._scheduler.running))
        assert engine.cache_statistics.held <= 8
    assert plain == [tuple(got[request_id]) for request_id in ids]
    assert ids == order
    assert 1 < most < len(PROMPTS)


@pytest.mark.parametrize("seed", range(3))
def test_i8_shared_prefixes_and_cancels_in_a_pool_too_small_for_them(seed: int) -> None:
    random = np.random.default_rng(seed)
    trunk = [int(token) for token in random.integers(0, TARGET.vocab_size, 60)]
    prompts = [
        [*trunk[: int(random.integers(1, 60))], *(int(t) for t in random.integers(0, 97, 3))]
        for _ in range(12)
    ]
    alone = make_engine(False, max_batch=1, reuse_prefixes=False)
    expected = [alone.generate([prompt], GREEDY)[0].token_ids for prompt in prompts]
    engine = make_engine(pages=24, page_size=8, prefill_tokens=5, max_batch=4)
    asked: dict[int, int] = {}
    got: dict[int, list[int]] = {}
    cut = 0
    for _ in range(60):
        number = int(random.integers(12))
        request_id = engine.submit(prompts[number], GREEDY, drafts=int(random.choice([0, 0, 3, 5])))
        asked[request_id] = number
        got[request_id] = []
        for _ in range(int(random.integers(0, 9))):
            for event in engine.step():
                got[event.request_id] += event.token_ids
        if random.random() < 0.4:
            victims = [r for r in engine._requests.values() if r.table is not None]
            if victims:
                victim = victims[int(random.integers(len(victims)))]
                cut += victim.put_out == 0
                engine.cancel(victim.id)
                del asked[victim.id]
    while engine.busy:
        for event in engine.step():
            got[event.request_id] += event.token_ids
    assert cut > 0, "no request was cancelled within its prompt"
    assert engine.statistics.cached_tokens > 200
    assert [expected[number] for number in asked.values()] == [tuple(got[r]) for r in asked]
    assert 0 == engine.pages_held


REDUCED = dataclasses.replace(DRAFT, draft_vocab_size=23)
KNOWN = frozenset(4 * index + 2 for index in range(23))


def reduced_engine(config: DraftConfig = REDUCED, **changes: Any) -> Engine:
    tensors = draft_tensors(config)
    tensors["d2t"] = torch.arange(23) * 3 + 2
    target = target_model()
    return Engine(target, draft_model(target, config, tensors), engine_config(**changes))


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_d3_a_request_that_forbids_all_the_draft_knows_gets_none_of_it(temperature: float) -> None:
    forbidding = SamplingParams(
        max_tokens=12,
        temperature=temperature,
        seed=5,
        logit_bias=dict.fromkeys(KNOWN, -math.inf),
    )
    engine = reduced_engine()
    completion = engine.generate([PROMPTS[0]], forbidding)[0]
    assert 12 == len(completion.token_ids)
    assert not KNOWN & set(completion.token_ids)
    acceptance = completion.statistics.acceptance
    assert [] == acceptance.verified
    assert 10 == acceptance.draft_skipped["vocabulary"]
    assert not engine.statistics.health
    # One id left is enough to draft from.
    freed = {token: bias for token, bias in forbidding.logit_bias.items() if token != 2}
    some = engine.generate([PROMPTS[0]], dataclasses.replace(forbidding, logit_bias=freed))[0]
    assert sum(some.statistics.acceptance.verified) > 0


def test_a_request_that_forbids_every_token_is_refused() -> None:
    every = dict.fromkeys(range(TARGET.vocab_size), -math.inf)
    with pytest.raises(InvalidRequest, match="`logit_bias` forbids every token"):
        make_engine().submit([1], dataclasses.replace(GREEDY, logit_bias=every))
    del every[50]
    completion = make_engine().generate([[1]], dataclasses.replace(GREEDY, logit_bias=every))[0]
    assert (50,) * 12 == completion.token_ids


def test_d1_behind_a_token_that_the_draft_does_not_know_it_does_not_draft() -> None:
    # A target may have more rows than the draft's tables, and put one of them out.
    config = dataclasses.replace(PLAIN_DRAFT, vocab_size=96, draft_vocab_size=23)
    engine = reduced_engine(config)
    bias = {96: 1000.0}
    beyond = engine.generate([PROMPTS[0]], dataclasses.replace(GREEDY, logit_bias=bias))[0]
    assert (96,) * 12 == beyond.token_ids
    assert 10 == beyond.statistics.acceptance.draft_skipped["vocabulary"]
    assert [] == beyond.statistics.acceptance.verified
    within = engine.generate([PROMPTS[0]], GREEDY)[0]
    assert sum(within.statistics.acceptance.verified) > 0


def test_what_a_cancelled_request_did_stays_counted(plain: list[tuple[int, ...]]) -> None:
    engine = make_engine(prefill_tokens=8)
    prompt = (PROMPTS[0] * 9)[:30]
    early = engine.submit(prompt, GREEDY)
    engine.step()
    in_prompt = engine.request_statistics(early)
    assert engine.cancel(early) is not None
    assert (30, 0, 0) == (
        in_prompt.prompt_tokens,
        in_prompt.completion_tokens,
        in_prompt.acceptance.rounds,
    )
    late = engine.submit(PROMPTS[2], GREEDY)
    counts = engine.request_statistics(late)
    while counts.completion_tokens < 4:
        engine.step()
    engine.cancel(late)
    put_out = counts.completion_tokens
    assert (2, 2) == (engine.statistics.requests, engine.statistics.finished)
    assert put_out == engine.statistics.completion_tokens < 12
    assert put_out - 1 == engine.statistics.acceptance.round_tokens
    assert counts.acceptance.rounds == engine.statistics.acceptance.rounds > 0
    for phase in ("draft_s", "verify_s", "host_s"):
        both = getattr(in_prompt, phase) + getattr(counts, phase)
        assert both == pytest.approx(getattr(engine.statistics, phase))
    with pytest.raises(KeyError):
        engine.request_statistics(late)
    assert plain[2] == engine.generate([PROMPTS[2]], GREEDY)[0].token_ids


def test_a_passs_time_is_divided_by_what_each_request_brought(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine = make_engine()
    ids = [
        engine.submit(prompt, GREEDY, drafts=k) for prompt, k in zip(PROMPTS, (5, 0), strict=False)
    ]
    engine.step()
    drafting, plain = (engine.request_statistics(request_id) for request_id in ids)
    for counts in (engine.statistics, drafting, plain):
        counts.draft_s = counts.verify_s = counts.host_s = 0.0
    # A clock that ticks when it is looked at, so that every phase takes one tick.
    ticks = iter(range(100))
    monkeypatch.setattr(timing, "perf_counter", lambda: float(next(ticks)))
    engine.step()
    # Proposing and extending the context; 6 rows of 7; choosing, and half of the page tables.
    assert (2.0, 6 / 7, 1.5) == (drafting.draft_s, drafting.verify_s, drafting.host_s)
    assert (0.0, 1 / 7, 1.5) == (plain.draft_s, plain.verify_s, plain.host_s)
    total = engine.statistics
    assert (2.0, 1.0, 3.0) == (total.draft_s, total.verify_s, total.host_s)


def test_logprobs_at_a_rejection_are_the_targets_there() -> None:
    # At temperature 1 most drafts of a random model are rejected; each note must be what a pass
    # over the whole text gives at its place.
    from dspark.runtime.models.rows import Segment
    from dspark.runtime.sampling import logprob

    params = SamplingParams(max_tokens=40, temperature=1.0, seed=3, logprobs=2)
    engine = make_engine()
    completion = engine.generate([PROMPTS[3]], params)[0]
    acceptance = completion.statistics.acceptance
    assert 0 < sum(acceptance.accepted) < sum(acceptance.verified)
    model = target_model()
    tokens = [*PROMPTS[3], *completion.token_ids]
    passed = model.forward([Segment(tokens, 0, range(8))], model.new_store(8, 16))
    logits = model.backend.host(model.logits(passed.hidden))
    first = len(PROMPTS[3]) - 1
    for index, note in enumerate(completion.logprobs):
        assert logprob(logits[first + index], completion.token_ids[index], 2) == note


@pytest.mark.parametrize("seed", range(4))
def test_penalties_count_what_was_put_out_and_no_draft(seed: int) -> None:
    # Text with penalties from an engine that drafts, checked token by token against the logits of
    # the whole text and the naive distribution: at temperature 0 it is its argmax.
    from dspark.runtime.models.rows import Segment
    from tests.runtime.naive_sampling import naive

    params = SamplingParams(
        max_tokens=30,
        temperature=0.0,
        repetition_penalty=1.4,
        presence_penalty=0.6,
        frequency_penalty=0.5,
        logit_bias={7: 1.5},
    )
    engine = make_engine()
    prompt = PROMPTS[seed]
    output = engine.generate([prompt], params)[0].token_ids
    model = target_model()
    tokens = [*prompt, *output]
    passed = model.forward([Segment(tokens, 0, range(8))], model.new_store(8, 16))
    logits = model.backend.host(model.logits(passed.hidden))
    for index, token in enumerate(output):
        row = [float(logit) for logit in logits[len(prompt) - 1 + index]]
        assert 1.0 == naive(row, params, prompt, output[:index])[token]
    assert sum(engine.statistics.acceptance.verified) > 0


def test_m3_both_pools_are_reported() -> None:
    engine = make_engine(pages=10, page_size=16)
    store = 10 * 16
    target = 3 * 2 * 2 * 12 * 4 * store
    draft = 2 * 2 * 1 * 16 * 4 * store
    cache = engine.cache_statistics
    assert (10, 0, 0, target, draft) == dataclasses.astuple(cache)
    engine.generate([[1] * 40], GREEDY)
    engine.submit([2] * 5, dataclasses.replace(GREEDY, max_tokens=2))
    engine.step()
    cache = engine.cache_statistics
    # 51 positions of the first filled three pages, which nobody holds any more.
    assert (10, 1, 3, target, draft) == dataclasses.astuple(cache)
    assert 0 == make_engine(False).cache_statistics.draft_bytes
