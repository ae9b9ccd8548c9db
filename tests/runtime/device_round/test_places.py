"""Rounds on the device, one property each: whose rows, whose state, whose memory."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dspark.kernels.errors import AllocationError
from dspark.kernels.host_driver import HostDriver
from dspark.runtime.backends.reference import ReferenceBackend
from dspark.runtime.backends.torch_cpu import TorchCpuBackend
from dspark.runtime.confidence import ConfidenceSchedule
from dspark.runtime.device_round.program import Program
from dspark.runtime.device_round.state import State
from dspark.runtime.engine import Engine
from dspark.runtime.losslessness import Losslessness, add_prompt
from dspark.runtime.models.rows import Segment
from dspark.runtime.params import SamplingParams
from tests.runtime.backends.test_cuda import Holder
from tests.runtime.device_round.pair import (
    DRAFT_CONFIG,
    TARGET_CONFIG,
    engine,
    models,
    round_of,
    rounded,
    simulator,
)
from tests.runtime.device_round.test_device_round import proposals
from tests.runtime.tiny import draft_tensors, engine_config, target_tensors

PROMPTS = [[5, 6, 7, 8, 9, 10, 11], [100, 3, 44] * 9, [77]]


def greedy(count: int, **changes: Any) -> SamplingParams:
    return SamplingParams(max_tokens=count, temperature=0.0, ignore_eos=True, **changes)


def answer(made: Engine, requests: int, width: int) -> list[np.ndarray]:
    """Tokens, output, rows_of and kept of the newest round."""
    backend, rows = round_of(made)._backend, requests * width
    whole = backend.scratch.empty("answer", (2 * rows + 2 * requests,), "i32")
    tokens, out, rest = np.split(backend.device.read(whole), [rows, 2 * rows])
    return [tokens.reshape(requests, width), out.reshape(requests, width), *np.split(rest, 2)]


@pytest.mark.parametrize("kind", ["rnn", pytest.param("gated", marks=pytest.mark.slow)])
def test_a_walk_in_several_steps_drafts_what_one_step_drafts(
    kind: str, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests beyond those of one launch keep a state of their own."""
    config = dataclasses.replace(DRAFT_CONFIG, markov_head_type=kind)
    weights = rounded(draft_tensors(config, seed=11))
    found = []
    for together in (16, 2):
        monkeypatch.setattr("dspark.runtime.device_round.walk._TOGETHER", together)
        made = engine(simulator(repository), config, draft_weights=weights, drafts=4)
        for prompt in PROMPTS:
            made.submit(prompt, greedy(9))
        made.step()
        made.step()
        found.append(answer(made, 4, 5)[0][:3].tolist())
    assert found[0] == found[1]


def test_a_text_is_judged_by_an_engine_that_has_graphs(repository: Path) -> None:
    """What `dspark verify --device cuda` does for every prompt."""
    made = engine(simulator(repository))
    found = Losslessness()
    add_prompt(found, made, made._models.target, PROMPTS[0], greedy(9))
    assert round_of(made).graphs.captured > 0
    assert 9 == found.tokens


def test_a_round_that_ran_short_of_memory_can_be_had_again(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its size is not taken for seen: its arrays have not grown."""
    made = engine(simulator(repository), drafts=2)
    expected = engine(simulator(repository), drafts=2).generate(PROMPTS[:2], greedy(6))
    made.generate(PROMPTS[2:], greedy(6))
    run, empty, short = Program.run, HostDriver.empty, [False, False]

    def starved(self: Program, state: State, sizes: Any) -> None:
        short[0] = (sizes.requests, sizes.drafts) == (2, 2) and not short[1]
        if short[0]:
            # As if it were too small for this round: it is one of the last that are asked for.
            arrays = self._backend.scratch._arrays
            arrays["top"] = arrays["top"].rows(0, 4)
        run(self, state, sizes)

    def refused(self: HostDriver, *arguments: Any) -> Any:
        if short[0]:
            short[:] = [False, True]
            raise AllocationError("there is no more", 2, 1, "GPU 0")
        return empty(self, *arguments)

    monkeypatch.setattr(Program, "run", starved)
    monkeypatch.setattr(HostDriver, "empty", refused)
    with pytest.raises(AllocationError, match="there is no more"):
        made.generate(PROMPTS[:2], greedy(6))
    assert short == [False, True]

    found = made.generate(PROMPTS[:2], greedy(6))

    assert [each.token_ids for each in expected] == [each.token_ids for each in found]


def test_engines_of_one_target_keep_out_of_each_others_way(repository: Path) -> None:
    made = models(simulator(repository))
    config = engine_config(max_length=192, max_batch=4, pages=64, page_size=16)
    both = [Engine(*made, config) for _ in range(2)]
    alone = [engine(simulator(repository)).generate([each], greedy(8))[0] for each in PROMPTS[:2]]
    texts: list[list[int]] = [[], []]
    for each, prompt in zip(both, PROMPTS[:2], strict=True):
        each.submit(prompt, greedy(8))
    while any(one.busy for one in both):
        for each, text in zip(both, texts, strict=True):
            for event in each.step():
                text.extend(event.token_ids)
    assert [list(each.token_ids) for each in alone] == texts


def test_f5_a_draft_without_numbers_is_told_from_a_bias_that_forbids(repository: Path) -> None:
    weights = rounded(draft_tensors(DRAFT_CONFIG))
    weights["norm.weight"] = torch.full_like(weights["norm.weight"], torch.nan)
    made = engine(simulator(repository), draft_weights=weights, drafts=2)

    made.generate(PROMPTS[:1], greedy(4, logit_bias={9: -float("inf")}))

    assert {"nonfinite": 2} == dict(made.statistics.acceptance.draft_skipped)
    assert ["draft_nonfinite"] == list(made.statistics.health)


def test_more_than_eight_requests_draft_what_each_drafts_alone(repository: Path) -> None:
    prompts = [[number + 1, 7] for number in range(9)]

    def drafts(*each: list[int]) -> list[list[int]]:
        made = engine(simulator(repository), drafts=2, max_batch=9)
        for prompt in each:
            made.submit(prompt, greedy(5))
        made.step()
        made.step()
        rows: list[list[int]] = answer(made, len(each), 3)[0].tolist()
        return rows

    together = drafts(*prompts)
    assert [drafts(prompts[0])[0], drafts(prompts[8])[0]] == [together[0], together[8]]


def test_places_without_a_request_have_no_rows(repository: Path) -> None:
    made = engine(simulator(repository))
    for prompt in PROMPTS:
        made.submit(prompt, greedy(9))
    for width in (1, 6):
        made.step()
        tokens, _, rows_of, kept = answer(made, 4, width)
        assert (rows_of[:3] > 0).all()
        assert (0, 0, -1) == (rows_of[3], kept[3], tokens[3, 0])


def test_draws_of_a_walk_in_several_steps_are_those_of_one_step(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for together in (16, 2):
        monkeypatch.setattr("dspark.runtime.device_round.walk._TOGETHER", together)
        made = engine(simulator(repository), drafts=2)
        params = [SamplingParams(max_tokens=5, seed=seed, ignore_eos=True) for seed in range(3)]
        for prompt, each in zip(PROMPTS, params, strict=True):
            made.submit(prompt, each)
        made.step()
        made.step()
        found.append(answer(made, 4, 3)[0][:3].tolist())
    assert found[0] == found[1]


def test_what_a_draft_does_not_know_is_never_drawn(repository: Path) -> None:
    """At this temperature any token that had a logit at all would soon be drawn."""
    config = dataclasses.replace(DRAFT_CONFIG, draft_vocab_size=8)
    weights = rounded(draft_tensors(config, seed=11))
    known = torch.arange(8) * 13
    weights["d2t"] = known - torch.arange(8)
    made = engine(simulator(repository), config, draft_weights=weights)
    for prompt in PROMPTS:
        made.submit(prompt, SamplingParams(max_tokens=9, temperature=1e6, seed=1, ignore_eos=True))
    made.step()
    made.step()
    drafts = answer(made, 4, 6)[0][:3, 1:]
    assert set(drafts.ravel().tolist()) <= set(known.tolist())
    assert len(set(drafts.ravel().tolist())) > 2


def test_requests_that_do_not_draft_count_in_the_schedule(repository: Path) -> None:
    """Two rows are cheap and a third is not: beside another request a draft does not pay."""
    schedule = ConfidenceSchedule(((1, 100.0), (2, 100.0), (3, 1.0)))
    verified = []
    for others in (0, 1):
        made = engine(simulator(repository), schedule=schedule)
        made.submit(PROMPTS[0], greedy(9))
        for _ in range(others):
            made.submit(PROMPTS[2], greedy(9), drafts=0)
        made.step()
        made.step()
        verified.append(int(answer(made, 1 + others, 6)[2][0]) - 1)
    assert [1, 0] == verified


def test_an_array_that_has_moved_is_written_again(repository: Path) -> None:
    backend = simulator(repository)
    backend.scratch.filled("some", [1, 2])
    backend.scratch.empty("some", (5000,), "i32")
    assert [1, 2] == backend.device.read(backend.scratch.filled("some", [1, 2])).tolist()


def test_what_was_written_is_noted_not_who_said_so(repository: Path) -> None:
    """The caller's own array may change behind the call."""
    backend = simulator(repository)
    values = np.array([1, 2], np.int32)
    backend.scratch.filled("some", values)
    values[0] = 7
    assert [7, 2] == backend.device.read(backend.scratch.filled("some", values)).tolist()


def test_an_array_that_grows_is_filled_once_more_and_grows_seldom(repository: Path) -> None:
    backend = simulator(repository)
    holder = Holder()
    backend.scratch.holders.add(holder)
    grown = holder.released
    for size in (4, 40, 5000):
        found = backend.scratch.once("some", (size,), "f32", 3.0)
        assert {3.0} == set(backend.device.read(found).tolist())
    assert [1, 1] == grown


def test_a_length_that_a_round_has_moved_is_not_taken_for_what_it_was(repository: Path) -> None:
    """One request behind another, as long as that one was when it began."""
    prompts = PROMPTS[0], PROMPTS[0][::-1]
    made = engine(simulator(repository))
    backend = round_of(made)._backend
    for prompt in prompts:
        made.generate([prompt], greedy(1))
        lengths = backend.device.read(backend.scratch.empty("lengths", (1,), "i32"))
        assert [len(prompt)] == lengths.tolist()


def test_positions_of_several_splits(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A prompt that ends in the second split, read and decoded behind; then against float32."""
    monkeypatch.setattr("tests.runtime.device_round.pair.MAX_LENGTH", 320)
    prompt = [int(at * at * 3 % 128) for at in range(263)]
    texts = []
    for backend in (simulator(repository), TorchCpuBackend("float32")):
        made = engine(backend, drafts=2, max_length=300)
        texts.append(made.generate([prompt], greedy(4))[0].token_ids)
    assert texts[0] == texts[1]


@pytest.mark.parametrize("non_causal", [False, True])
def test_drafts_with_a_window_are_those_of_float64(non_causal: bool, repository: Path) -> None:
    config = dataclasses.replace(
        DRAFT_CONFIG,
        layer_types=("sliding_attention", "full_attention"),
        sliding_window=3,
        sliding_window_non_causal=non_causal,
    )
    weights = rounded(draft_tensors(config, seed=11))
    made = engine(simulator(repository), config, draft_weights=weights, drafts=4)
    ids = [made.submit(prompt, greedy(9)) for prompt in PROMPTS]
    made.step()
    requests = [made._requests[each] for each in ids]
    tokens = [list(each.tokens) for each in requests]
    made.step()
    found = answer(made, 4, 5)[0][:3, 1:].tolist()
    assert proposals(config, weights, tokens, requests, 4) == found


def test_what_was_put_out_moves_with_its_request(repository: Path) -> None:
    """The first of two leaves, and the other takes its place on the device."""
    penalised = greedy(8, frequency_penalty=-1e6)
    made = engine(simulator(repository), None)
    both = made.generate(PROMPTS[:2], [greedy(3, frequency_penalty=-1e6), penalised])
    (alone,) = engine(simulator(repository), None).generate(PROMPTS[1:2], penalised)
    assert alone.token_ids == both[1].token_ids
    assert 1 == len(set(alone.token_ids))


def test_a_block_reaches_behind_the_longest_request(repository: Path) -> None:
    """Its pages are more than those of all positions that a request may have."""
    prompt, length = [int(at * 11 % 130) for at in range(26)], 32
    texts = []
    for config in (None, DRAFT_CONFIG):
        made = engine(simulator(repository), config, max_length=length)
        request = made.submit(prompt, greedy(99))
        held = made._requests[request]
        made.step()
        pages = len(held.held.pages)
        while made.busy:
            made.step()
        texts.append(held.tokens)
    assert pages > length // 16
    assert (32, "length") == (len(held.tokens), held.finish_reason)
    assert texts[0] == texts[1]
    assert held.statistics.acceptance.verified


def test_many_query_heads_take_fewer_rows_at_once(repository: Path) -> None:
    config = dataclasses.replace(TARGET_CONFIG, num_attention_heads=12, num_key_value_heads=1)
    tensors = rounded(target_tensors(config))
    segment = Segment(list(range(5, 26)), 0, [1, 0])
    found = []
    for backend in (simulator(repository), ReferenceBackend()):
        model, _ = models(backend, None, target=config, target_weights=tensors)
        passed = model.forward([segment], model.new_store(2, 16))
        found.append(backend.host(model.logits(passed.hidden)))
    assert np.abs(found[0] - found[1]).max() < 0.03 * np.abs(found[1]).max()


def test_greedy_drafts_are_of_processed_logits(repository: Path) -> None:
    made = engine(simulator(repository))
    made.submit(PROMPTS[0], greedy(9, logit_bias={50: 1e6}))
    made.step()
    made.step()
    tokens, _, _, kept = answer(made, 1, 6)
    assert [50] * 5 == tokens[0, 1:].tolist()
    assert 6 == kept[0]


def test_drafts_that_nobody_asked_for_are_not_missed(repository: Path) -> None:
    """One request has a draft a round, beside another that has five."""
    made = engine(simulator(repository))
    made.submit(PROMPTS[0], SamplingParams(max_tokens=9, seed=1, ignore_eos=True), drafts=1)
    made.submit(PROMPTS[2], greedy(9))
    made.step()
    made.step()
    skipped = [each.statistics.acceptance.draft_skipped for each in made._requests.values()]
    assert [{}, {}] == [dict(each) for each in skipped]


def test_rows_beyond_those_of_one_launch_have_their_own_best(repository: Path) -> None:
    prompts = [[number + 1, 7] for number in range(17)]
    made = engine(simulator(repository), None, max_batch=17)
    found = [each.token_ids for each in made.generate(prompts, greedy(1))]
    alone = engine(simulator(repository), None)
    assert [each.token_ids for each in alone.generate(prompts[16:], greedy(1))] == found[16:]
    assert found[16] != found[0]


def test_logprobs_and_confidence_are_those_of_their_request(repository: Path) -> None:
    """Of the second of two, against what it gets alone."""
    schedule = ConfidenceSchedule(((1, 100.0), (64, 99.0)))
    noted = []
    for prompts in (PROMPTS[:2], PROMPTS[1:2]):
        made = engine(simulator(repository), schedule=schedule)
        rounds = made.record_confidence()
        found = made.generate(prompts, greedy(3, logprobs=0))
        noted.append((found[-1].logprobs, rounds[len(prompts) - 1]))
    assert noted[0] == noted[1]


def test_a_bias_that_leaves_the_draft_nothing_is_counted_as_that(repository: Path) -> None:
    config = dataclasses.replace(DRAFT_CONFIG, draft_vocab_size=8)
    weights = rounded(draft_tensors(config, seed=11))
    weights["d2t"] = torch.arange(8) * 12
    made = engine(simulator(repository), config, draft_weights=weights)
    made.generate(PROMPTS[2:], greedy(4, logit_bias=dict.fromkeys(range(0, 104, 13), -np.inf)))
    assert {"vocabulary": 2} == dict(made.statistics.acceptance.draft_skipped)
    assert [] == list(made.statistics.health)
