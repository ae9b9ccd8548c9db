"""The engine: with a draft or without, alone or in company, the text is the same."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import numpy as np
import pytest
import torch

from dspark.runtime.engine import Completion, Engine
from dspark.runtime.errors import InvalidRequest, NonFiniteLogits
from dspark.runtime.params import SamplingParams
from dspark.runtime.request import TokenEvent
from tests.runtime.tiny import (
    DRAFT,
    PLAIN_DRAFT,
    TARGET,
    ScriptedDraft,
    draft_model,
    draft_tensors,
    engine_config,
    make_engine,
    random_prompts,
    target_model,
    target_tensors,
)

TOKENS = 20
GREEDY = SamplingParams(max_tokens=TOKENS, temperature=0.0)
PROMPTS = random_prompts(8)
BLOCK = DRAFT.block_size


def ids(completions: list[Completion]) -> list[tuple[int, ...]]:
    return [completion.token_ids for completion in completions]


@pytest.fixture(scope="module")
def plain() -> list[tuple[int, ...]]:
    """What the target puts out alone, one prompt at a time."""
    engine = make_engine(False, max_batch=1, reuse_prefixes=False)
    return [ids(engine.generate([prompt], GREEDY))[0] for prompt in PROMPTS]


def test_h4_plain_decoding_is_what_the_whole_sequence_gives_at_once(
    plain: list[tuple[int, ...]],
) -> None:
    # Every token is the argmax of a teacher-forced pass.
    from dspark.runtime.models.rows import Segment

    model = target_model()
    for prompt, output in zip(PROMPTS, plain, strict=True):
        tokens = [*prompt, *output]
        passed = model.forward([Segment(tokens, 0, range(8))], model.new_store(8, 16))
        best, _ = model.backend.argmax(model.logits(passed.hidden))
        assert tokens[len(prompt) :] == best[len(prompt) - 1 : -1].tolist()
    assert len({token for output in plain for token in output}) > 30, "these texts repeat too much"


@pytest.mark.parametrize("batch", range(1, 9))
@pytest.mark.parametrize("k", range(BLOCK + 1))
def test_c12_h1_greedy_text_is_the_same_for_every_length_and_batch(
    k: int, batch: int, plain: list[tuple[int, ...]]
) -> None:
    engine = make_engine(max_batch=batch, drafts=k)
    assert plain == ids(engine.generate(PROMPTS, GREEDY))
    assert 0 == engine.pages_held


@pytest.mark.parametrize("chunk", [1, 3, 16, 17, 1000])
def test_h3_greedy_text_is_the_same_for_every_prefill_chunk(
    chunk: int, plain: list[tuple[int, ...]]
) -> None:
    engine = make_engine(prefill_tokens=chunk)
    assert plain == ids(engine.generate(PROMPTS, GREEDY))


@pytest.mark.parametrize("page_size", [8, 16, 64])
def test_greedy_text_is_the_same_for_every_linear(page_size: int, linears: str) -> None:
    from dspark.runtime.backends.torch_cpu import TorchCpuBackend

    backend = TorchCpuBackend("float32", linears)  # type: ignore[arg-type]
    alone = make_engine(False, backend=backend, page_size=page_size).generate(PROMPTS, GREEDY)
    drafted = make_engine(backend=backend, page_size=page_size).generate(PROMPTS, GREEDY)
    assert ids(alone) == ids(drafted)


def scripted_engine(
    right: Any, plain: list[tuple[int, ...]], which: list[int], **changes: Any
) -> Engine:
    target = target_model(taps=PLAIN_DRAFT.target_layer_ids)
    draft = ScriptedDraft(target, right)
    draft.truths = [[*PROMPTS[index], *plain[index]] for index in which]
    return Engine(target, draft, engine_config(**changes))


@pytest.mark.parametrize("accepted", list(itertools.product(range(BLOCK + 1), repeat=2)), ids=str)
def test_i1_i3_every_pair_of_accept_patterns(
    accepted: tuple[int, int], plain: list[tuple[int, ...]]
) -> None:
    which = [2, 5]

    def right(call: int, row: int) -> int:
        # The pattern, then the other way round, then everything, so that later rounds build on it.
        return (accepted[row], accepted[1 - row], BLOCK)[call % 3]

    engine = scripted_engine(right, plain, which)
    completions = engine.generate([PROMPTS[index] for index in which], GREEDY)
    assert [plain[index] for index in which] == ids(completions)
    counts = engine.statistics.acceptance
    assert sum(counts.accepted) > 0
    # After the first round the caches hold the prompt and all tokens but the newest.
    assert 2 * (TOKENS - 1) == counts.round_tokens


def test_i1_after_each_round_the_caches_hold_all_but_the_newest_token(
    plain: list[tuple[int, ...]],
) -> None:
    random = np.random.default_rng(0)
    engine = scripted_engine(lambda *_: int(random.integers(0, BLOCK + 1)), plain, [2])
    request_id = engine.submit(PROMPTS[2], GREEDY)
    request = engine._requests[request_id]
    while engine.busy:
        engine.step()
        if request.finish_reason is None:
            assert len(request.tokens) - 1 == request.held.length


def test_b13_a_right_draft_is_accepted_whole_at_every_length(plain: list[tuple[int, ...]]) -> None:
    for k in range(1, BLOCK + 1):
        engine = scripted_engine(lambda *_: BLOCK, plain, [2], drafts=k)
        completion = engine.generate([PROMPTS[2]], GREEDY)[0]
        assert plain[2] == completion.token_ids
        counts = completion.statistics.acceptance
        assert -(-(TOKENS - 1) // (k + 1)) == counts.rounds
        # As many positions as drafts were made, not as the block could hold.
        assert (1.0,) * k == counts.acceptance_per_position


def test_c9_drafts_for_a_smaller_length_are_the_first_of_the_larger() -> None:
    from dspark.runtime.propose import propose

    proposals = []
    for k in range(1, BLOCK + 1):
        engine = make_engine()
        engine.submit(PROMPTS[1], GREEDY)
        engine.step()
        models, requests = engine._round._models, list(engine._requests.values())
        assert models.draft is not None
        assert models.draft_store is not None
        proposals.append(propose(models.draft, models.draft_store, requests, [k], None)[0].tokens)
    for k, tokens in enumerate(proposals, 1):
        assert list(proposals[-1][:k]) == list(tokens)


@pytest.mark.parametrize("k", [BLOCK + 1, -1, 1_000_000])
def test_c9_more_drafts_than_the_block_holds_are_refused(k: int) -> None:
    message = f"`drafts` must be from 0 to 5, which is what the draft's block holds, not `{k}`"
    with pytest.raises(InvalidRequest) as refusal:
        make_engine(drafts=k)
    assert message == str(refusal.value)
    with pytest.raises(InvalidRequest):
        make_engine().submit([1], GREEDY, drafts=k)


def test_c9_an_anchor_that_drafts_nothing_leaves_one_draft_less() -> None:
    config = dataclasses.replace(DRAFT, sample_from_anchor=False)
    make_engine(draft_config=config, drafts=4)
    with pytest.raises(InvalidRequest, match="from 0 to 4"):
        make_engine(draft_config=config, drafts=5)


@pytest.mark.parametrize(
    "config",
    [
        dataclasses.replace(DRAFT, sample_from_anchor=False),
        dataclasses.replace(DRAFT, markov_head_type="rnn"),
        dataclasses.replace(DRAFT, layer_types=("sliding_attention",) * 2, sliding_window=3),
        PLAIN_DRAFT,
    ],
    ids=["no-anchor-draft", "rnn", "sliding", "dflash"],
)
def test_greedy_text_is_the_same_with_every_kind_of_draft(
    config: Any, plain: list[tuple[int, ...]]
) -> None:
    assert plain == ids(make_engine(draft_config=config).generate(PROMPTS, GREEDY))


def test_i8_a_prefix_hit_restores_the_drafts_context() -> None:
    prompt = random_prompts(1, seed=9)[0] * 3
    prompt = (prompt * 60)[:60]
    cold = make_engine(reuse_prefixes=False)
    expected = cold.generate([prompt], GREEDY)[0]
    engine = make_engine()
    first = engine.generate([prompt], GREEDY)[0]
    second = engine.generate([prompt], GREEDY)[0]
    assert 48 == second.statistics.cached_tokens
    assert expected.token_ids == first.token_ids == second.token_ids
    # The same drafts were made: had the context been lost, acceptance would differ.
    assert expected.statistics.acceptance == second.statistics.acceptance
    assert 0 == engine.generate([prompt], GREEDY, drafts=0)[0].statistics.cached_tokens


def test_i8_a_prefix_hit_gives_the_very_same_proposals() -> None:
    from dspark.runtime.propose import propose

    made = []
    engine = make_engine()
    prompt = (PROMPTS[0] * 9)[:50]
    for _ in range(2):
        request_id = engine.submit(prompt, GREEDY)
        engine.step()
        models, request = engine._round._models, engine._requests[request_id]
        assert models.draft is not None
        assert models.draft_store is not None
        made.append(list(propose(models.draft, models.draft_store, [request], [5], None)[0].tokens))
        engine.cancel(request_id)
    assert made[0] == made[1]


def test_i7_poisoned_pages_are_harmless(plain: list[tuple[int, ...]]) -> None:
    # What an earlier request left behind, NaN included, must not be read.
    engine = make_engine()
    models = engine._round._models
    assert models.draft_store is not None
    for store in (models.target_store, models.draft_store):
        for tensor in (*store.keys, *store.values):
            tensor.fill_(torch.nan)
    assert plain == ids(engine.generate(PROMPTS, GREEDY))
    assert not engine.statistics.health


def test_l1_i9_requests_join_and_leave_at_any_round(plain: list[tuple[int, ...]]) -> None:
    random = np.random.default_rng(5)
    engine = make_engine(max_batch=3, pages=40)
    lengths = [int(length) for length in random.integers(1, TOKENS, 24)]
    lengths[:4] = [1, 3, 5, 9]
    got: dict[int, list[int]] = {}
    asked: dict[int, tuple[int, int]] = {}
    sizes: set[int] = set()
    waiting = list(enumerate(lengths))
    while waiting or engine.busy:
        if waiting and random.random() < 0.4:
            number, length = waiting.pop(0)
            params = dataclasses.replace(GREEDY, max_tokens=length)
            k = int(random.integers(0, BLOCK + 1))
            request_id = engine.submit(PROMPTS[number % 8], params, drafts=k)
            asked[request_id] = (number % 8, length)
        for event in engine.step():
            got.setdefault(event.request_id, []).extend(event.token_ids)
        sizes.add(len(engine._scheduler.running))
        if random.random() < 0.05 and engine._requests:
            request_id = next(iter(engine._requests))
            event = engine.cancel(request_id)
            assert event is not None
            assert "cancelled" == event.finish_reason
            del asked[request_id]
    assert {0, 1, 2, 3} >= sizes >= {1, 2}
    for request_id, (number, length) in asked.items():
        assert plain[number][:length] == tuple(got[request_id])
    assert len(asked) > 10
    assert 0 == engine.pages_held


def test_j1_exactly_max_tokens(plain: list[tuple[int, ...]]) -> None:
    for cap in (1, 2, 6):
        engine = scripted_engine(lambda *_: BLOCK, plain, [2], drafts=4)
        completion = engine.generate([PROMPTS[2]], dataclasses.replace(GREEDY, max_tokens=cap))[0]
        assert plain[2][:cap] == completion.token_ids
        assert "length" == completion.finish_reason
        assert cap == completion.statistics.completion_tokens
        draft = engine._round._models.draft
        assert isinstance(draft, ScriptedDraft)
        # The first token is the prompt's; one more leaves no room for a draft.
        assert {1: 0, 2: 0, 6: 1}[cap] == draft.calls


def test_j2_j3_j5_a_stop_before_the_cap_wins_and_nothing_follows_it(
    plain: list[tuple[int, ...]],
) -> None:
    output = plain[2]
    stop = output[2]
    assert stop not in output[:2]
    for cap, reason, length in ((5, "stop", 3), (3, "stop", 3), (2, "length", 2)):
        engine = scripted_engine(lambda *_: BLOCK, plain, [2])
        params = dataclasses.replace(
            GREEDY, max_tokens=cap, stop_token_ids=frozenset({stop}), logprobs=0
        )
        completion = engine.generate([PROMPTS[2]], params)[0]
        assert (reason, output[:length]) == (completion.finish_reason, completion.token_ids)
        # Nothing after the stop is counted or noted anywhere.
        assert length == completion.statistics.completion_tokens == len(completion.logprobs)
        assert length == engine.statistics.completion_tokens
        counts = completion.statistics.acceptance
        assert length - 1 == counts.round_tokens
        if reason == "stop" and cap == 5:
            assert [1, 1] == counts.verified[:2] == counts.accepted[:2]
            assert 0 == sum(counts.verified[2:])


def test_j2_any_of_several_end_of_text_ids_ends_it(plain: list[tuple[int, ...]]) -> None:
    output = plain[2]
    ends = frozenset({output[4], output[7]})
    first = min(output.index(token) for token in ends)
    engine = scripted_engine(lambda *_: BLOCK, plain, [2], eos_token_ids=ends)
    stopped, ignoring = (
        engine.generate([PROMPTS[2]], GREEDY)[0],
        engine.generate([PROMPTS[2]], dataclasses.replace(GREEDY, ignore_eos=True))[0],
    )
    assert output[: first + 1] == stopped.token_ids
    assert "stop" == stopped.finish_reason
    assert output == ignoring.token_ids


def test_j6_a_full_cache_ends_the_text_and_the_last_tokens_are_the_targets_own(
    plain: list[tuple[int, ...]],
) -> None:
    prompt = (PROMPTS[1] * 9)[:12]
    long = make_engine(False).generate([prompt], GREEDY)[0].token_ids
    for drafts in range(BLOCK + 1):
        engine = make_engine(max_length=16, drafts=drafts)
        completion = engine.generate([prompt], GREEDY)[0]
        assert long[:4] == completion.token_ids
        assert "length" == completion.finish_reason
    del plain


def test_j8_g10_behind_the_drafts_positions_the_target_goes_on_alone(
    plain: list[tuple[int, ...]],
) -> None:
    short = dataclasses.replace(DRAFT, max_position_embeddings=24)
    engine = make_engine(draft_config=short)
    completions = engine.generate(PROMPTS, GREEDY)
    assert plain == ids(completions)
    assert engine.statistics.acceptance.draft_skipped["length"] > 0
    long_prompt = max(completions, key=lambda c: c.statistics.prompt_tokens)
    assert long_prompt.statistics.prompt_tokens > 24
    assert [] == long_prompt.statistics.acceptance.verified


def test_f5_a_draft_that_computes_no_numbers_is_reported_not_followed(
    plain: list[tuple[int, ...]],
) -> None:
    tensors = draft_tensors()
    tensors["norm.weight"].fill_(torch.inf)
    target = target_model()
    engine = Engine(target, draft_model(target, DRAFT, tensors), engine_config())
    completions = engine.generate(PROMPTS, GREEDY)
    assert plain == ids(completions)
    assert engine.statistics.acceptance.draft_skipped["nonfinite"] > 0
    assert ["draft_nonfinite"] == list(engine.statistics.health)
    assert [] == engine.statistics.acceptance.accepted


def test_a_target_that_computes_no_numbers_is_an_error() -> None:
    tensors = target_tensors()
    tensors["model.norm.weight"].fill_(torch.nan)
    engine = Engine(target_model(tensors=tensors), None, engine_config())
    with pytest.raises(NonFiniteLogits):
        engine.generate(PROMPTS[:1], GREEDY)


def test_a_draft_that_accepts_nothing_is_reported(plain: list[tuple[int, ...]]) -> None:
    engine = scripted_engine(lambda *_: 0, plain, [2], drafts=2)
    params = GREEDY
    for _ in range(256 // (TOKENS - 2)):
        engine.generate([PROMPTS[2]], params)
    assert not engine.statistics.health
    engine.generate([PROMPTS[2]], params)
    assert ["draft_ineffective"] == list(engine.statistics.health)
    assert 1.0 == engine.statistics.acceptance.tokens_per_round


SAMPLED = SamplingParams(max_tokens=12, temperature=1.0, seed=7)


def test_k5_the_same_seed_gives_the_same_text_in_any_batch() -> None:
    alone = [make_engine(max_batch=1).generate([p], SAMPLED)[0].token_ids for p in PROMPTS]
    together = make_engine(max_batch=8, prefill_tokens=11)
    assert alone == ids(together.generate(PROMPTS, SAMPLED))
    backwards = make_engine(max_batch=3).generate(PROMPTS[::-1], SAMPLED)
    assert alone == ids(backwards)[::-1]


def test_k9_seeds_matter_above_temperature_0_and_not_at_it() -> None:
    engine = make_engine()
    for temperature, expected in ((1.0, 20), (0.0, 1)):
        texts = {
            engine.generate(
                [PROMPTS[0]],
                dataclasses.replace(SAMPLED, seed=seed, temperature=temperature),
            )[0].token_ids
            for seed in range(1, 21)
        }
        assert expected == len(texts)


def test_without_a_seed_texts_differ() -> None:
    free = dataclasses.replace(SAMPLED, seed=None)
    first, second = make_engine().generate([PROMPTS[0]] * 2, free)
    assert first.token_ids != second.token_ids


def test_k5_each_row_has_its_own_parameters(plain: list[tuple[int, ...]]) -> None:
    params = [
        GREEDY,
        SAMPLED,
        dataclasses.replace(SAMPLED, temperature=0.3),
        dataclasses.replace(SAMPLED, top_k=1),
        dataclasses.replace(GREEDY, logit_bias={11: 1000.0}),
        dataclasses.replace(GREEDY, max_tokens=3),
    ]
    prompts = [PROMPTS[2]] * len(params)
    together = make_engine(max_batch=8).generate(prompts, params)
    for wanted, completion in zip(params, together, strict=True):
        alone = make_engine(max_batch=1).generate([PROMPTS[2]], wanted)[0]
        assert alone.token_ids == completion.token_ids
    assert plain[2] == together[0].token_ids
    assert plain[2][:12] == together[3].token_ids
    assert (11,) * TOKENS == together[4].token_ids


def test_greedy_with_penalties_is_the_same_with_and_without_a_draft() -> None:
    params = dataclasses.replace(
        GREEDY, repetition_penalty=1.3, frequency_penalty=0.7, presence_penalty=0.2
    )
    expected = ids(make_engine(False).generate(PROMPTS, params))
    assert expected == ids(make_engine().generate(PROMPTS, params))
    assert expected != ids(make_engine(False).generate(PROMPTS, GREEDY))


def test_logprobs_come_with_every_token(plain: list[tuple[int, ...]]) -> None:
    noted = dataclasses.replace(GREEDY, logprobs=3)
    alone, drafted = (
        make_engine(draft).generate([PROMPTS[2]], noted)[0] for draft in (False, True)
    )
    assert plain[2] == tuple(note.token_id for note in drafted.logprobs)
    assert alone.logprobs == drafted.logprobs
    for note in drafted.logprobs:
        assert note.top[0] == (note.token_id, note.logprob)
        assert 3 == len(note.top)


def test_stream_gives_the_same_and_cancels_when_it_is_left(plain: list[tuple[int, ...]]) -> None:
    engine = make_engine()
    events = list(engine.stream(PROMPTS[2], GREEDY))
    assert plain[2] == tuple(token for event in events for token in event.token_ids)
    assert "length" == events[-1].finish_reason
    stream = engine.stream(PROMPTS[2], GREEDY)
    next(stream)
    assert engine.busy
    stream.close()  # type: ignore[attr-defined]
    assert not engine.busy
    assert 0 == engine.pages_held
    assert engine.cancel(12345) is None


def test_a_waiting_request_can_be_cancelled() -> None:
    engine = make_engine(max_batch=1)
    first, second = engine.submit(PROMPTS[0], GREEDY), engine.submit(PROMPTS[1], GREEDY)
    engine.step()
    event = engine.cancel(second)
    assert TokenEvent(second, (), "", (), "cancelled") == event
    while engine.busy:
        engine.step()
    assert first != second
    assert 0 == engine.pages_held


@pytest.mark.parametrize(
    ("prompt", "changes", "message"),
    [
        ([], {}, "the prompt has no tokens"),
        ([5] * 256, {}, "the prompt has 256 tokens, and 256 is the most"),
        ([97], {}, "the prompt holds token `97`, and the target's ids end at 96"),
        ([-1], {}, "the prompt holds token `-1`"),
        ([1], {"logit_bias": {97: 1.0}}, "`logit_bias` holds token `97`"),
        ([1], {"stop_token_ids": frozenset({99})}, "`stop_token_ids` holds token `99`"),
        ([1], {"stop": ("x",)}, "`stop` strings need a tokenizer"),
    ],
)
def test_a_request_that_cannot_be_served_is_refused(
    prompt: list[int], changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidRequest, match=message):
        make_engine().submit(prompt, dataclasses.replace(GREEDY, **changes))


def test_m1_a_request_larger_than_the_cache_is_refused_with_the_numbers() -> None:
    engine = make_engine(pages=3)
    with pytest.raises(InvalidRequest, match="room for 50 positions, the engine has 3 pages of 16"):
        engine.submit([1] * 30, GREEDY)
    engine.submit([1] * 13, GREEDY)


@pytest.mark.parametrize(
    "name", ["max_length", "pages", "page_size", "max_batch", "prefill_tokens"]
)
def test_an_engine_without_room_is_refused(name: str) -> None:
    with pytest.raises(InvalidRequest, match=f"`{name}` must be at least 1, not `0`"):
        engine_config(**{name: 0})


def test_j5_statistics_add_up(plain: list[tuple[int, ...]]) -> None:
    engine = make_engine(max_batch=3)
    completions = engine.generate(PROMPTS, GREEDY)
    counts = engine.statistics
    assert (8, 8) == (counts.requests, counts.finished)
    assert sum(map(len, plain)) == counts.completion_tokens
    assert sum(c.statistics.completion_tokens for c in completions) == counts.completion_tokens
    # Every token but each request's first came out of a round.
    assert counts.completion_tokens - 8 == counts.acceptance.round_tokens
    assert counts.acceptance.round_tokens == counts.acceptance.rounds + sum(
        counts.acceptance.accepted
    )
    assert min(counts.draft_s, counts.verify_s, counts.host_s) > 0
    for phase in ("draft_s", "verify_s", "host_s"):
        shares = [getattr(c.statistics, phase) for c in completions]
        assert sum(shares) == pytest.approx(getattr(counts, phase))
        assert min(shares) > 0
    assert TARGET.vocab_size == 97
