"""The drafts of a running engine: right context, right positions, drawn from what they say."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from dspark.runtime.backends.torch_cpu import TorchCpuBackend
from dspark.runtime.choices import Purpose, SeededChoices
from dspark.runtime.engine import Engine
from dspark.runtime.models.block_draft import Anchor
from dspark.runtime.models.rows import Segment
from dspark.runtime.params import SamplingParams
from dspark.runtime.propose import propose
from tests.runtime.models.independent_draft import IndependentDraft
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

GREEDY = SamplingParams(max_tokens=25, temperature=0.0)
PROMPTS = random_prompts(6)


@pytest.mark.parametrize("seed", range(4))
def test_c8_i1_i10_the_block_sees_the_committed_context_in_every_round(seed: int) -> None:
    # Batch 2 with unequal acceptance; each round's block against a dense float64 one that gets
    # the features of all committed positions from a fresh pass of the target.
    random = np.random.default_rng(seed)
    prompts = [PROMPTS[2], PROMPTS[5]]
    outputs = [c.token_ids for c in make_engine(False).generate(prompts, GREEDY)]
    target = target_model(taps=PLAIN_DRAFT.target_layer_ids)
    draft = ScriptedDraft(target, lambda *_: int(random.integers(0, 6)))
    draft.truths = [[*p, *o] for p, o in zip(prompts, outputs, strict=True)]
    engine = Engine(target, draft, engine_config(prefill_tokens=9))
    independent = IndependentDraft(PLAIN_DRAFT, draft_tensors(PLAIN_DRAFT), target_tensors())
    for prompt in prompts:
        engine.submit(prompt, GREEDY)
    compared = 0
    store = engine._round._models.draft_store
    assert store is not None
    while engine.busy:
        engine.step()
        for request in engine._requests.values():
            if not request.put_out:
                continue
            tokens = request.tokens
            fresh = target.forward(
                [Segment(tokens[:-1], 0, range(8))], target.new_store(8, 16)
            ).features
            expected = independent.hidden(fresh.double().numpy(), tokens[-1])
            anchor = Anchor(tokens[-1], len(tokens) - 1, request.held.pages)
            block = super(ScriptedDraft, draft).block([anchor], store)[0]
            np.testing.assert_allclose(block.numpy(), expected, rtol=0, atol=1e-4)
            compared += 1
    assert compared > 10
    assert max(engine.statistics.acceptance.accepted) > 5


def test_d3_d6_drafts_of_a_reduced_vocabulary_are_target_ids() -> None:
    config = dataclasses.replace(DRAFT, draft_vocab_size=23)
    tensors = draft_tensors(config)
    tensors["d2t"] = torch.arange(23) * 3 + 2
    allowed = {4 * index + 2 for index in range(23)}
    expected = [c.token_ids for c in make_engine(False).generate(PROMPTS, GREEDY)]
    target = target_model()
    engine = Engine(target, draft_model(target, config, tensors), engine_config())
    assert expected == [c.token_ids for c in engine.generate(PROMPTS, GREEDY)]
    for params in (GREEDY, SamplingParams(max_tokens=9, seed=1)):
        request_id = engine.submit(PROMPTS[0], params)
        engine.step()
        models, request = engine._round._models, engine._requests[request_id]
        assert models.draft is not None
        assert models.draft_store is not None
        proposal = propose(models.draft, models.draft_store, [request], [5], None)[0]
        assert allowed >= set(proposal.tokens)
        for chances in proposal.chances:
            if chances is not None:
                assert TARGET.vocab_size == len(chances)
                assert allowed == {int(i) for i in np.flatnonzero(chances)}
        engine.cancel(request_id)


def test_k1_a_draft_is_drawn_from_the_array_it_is_judged_by() -> None:
    # bfloat16 logits: a softmax in bfloat16 would draw from another distribution.
    engine = make_engine(backend=TorchCpuBackend("bfloat16"))
    models = engine._round._models
    draws, chances = [], []

    class Spy(SeededChoices):
        def pick(self, weights: np.ndarray, place: int, purpose: Purpose) -> int:
            if purpose == Purpose.DRAFT:
                draws.append(weights)
            return super().pick(weights, place, purpose)

    for _ in range(8):
        request_id = engine.submit(PROMPTS[0], SamplingParams(max_tokens=9, temperature=0.7))
        engine._requests[request_id].choices = Spy(request_id)
    engine.step()
    assert models.draft is not None
    assert models.draft_store is not None
    requests = list(engine._requests.values())
    for proposal in propose(models.draft, models.draft_store, requests, [5] * 8, None):
        chances += list(proposal.chances)
    assert 40 == len(chances) == len(draws)
    for array in chances:
        assert array is not None
        assert np.float32 == array.dtype
        assert abs(array.sum(dtype=np.float64) - 1) < 1e-6
        assert any(array is drawn for drawn in draws)


def test_survival_comes_from_the_confidence_head() -> None:
    from dspark.runtime.confidence import ConfidenceSchedule

    schedule = ConfidenceSchedule(speed=((1, 1.0),))
    engine = make_engine()
    engine.submit(PROMPTS[0], GREEDY)
    engine.step()
    models, requests = engine._round._models, list(engine._requests.values())
    assert models.draft is not None
    assert models.draft_store is not None
    proposal = propose(models.draft, models.draft_store, requests, [5], schedule)[0]
    tokens = requests[0].tokens
    fresh = models.target.forward(
        [Segment(tokens[:-1], 0, range(8))], models.target.new_store(8, 16)
    ).features
    independent = IndependentDraft(DRAFT, draft_tensors(), target_tensors())
    _, drafts, sure = independent.walk(fresh.double().numpy(), tokens[-1])
    assert drafts == list(proposal.tokens)
    assert proposal.survival is not None
    np.testing.assert_allclose(proposal.survival, 1 / (1 + np.exp(-np.array(sure))), atol=1e-5)


def test_h1_bfloat16_text_is_the_same_with_and_without_a_draft() -> None:
    plain = make_engine(False, backend=TorchCpuBackend("bfloat16")).generate(PROMPTS, GREEDY)
    drafted = make_engine(backend=TorchCpuBackend("bfloat16")).generate(PROMPTS, GREEDY)
    assert [c.token_ids for c in plain] == [c.token_ids for c in drafted]
    # Not because the format makes no difference.
    exact = make_engine(False).generate(PROMPTS, GREEDY)
    assert [c.token_ids for c in plain] != [c.token_ids for c in exact]
