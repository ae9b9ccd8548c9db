"""The whole round on real models, by walking every path: the law of the text is the target's."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence

import pytest

from dspark.runtime.acceptance import Proposal
from dspark.runtime.confidence import ConfidenceSchedule
from dspark.runtime.engine import Engine
from dspark.runtime.models.rows import Segment
from dspark.runtime.params import SamplingParams
from dspark.runtime.scheduler import Work
from tests.runtime.enumeration import Path, law
from tests.runtime.naive_sampling import naive
from tests.runtime.tiny import (
    DRAFT,
    TARGET,
    draft_model,
    draft_tensors,
    engine_config,
    target_model,
    target_tensors,
)

VOCAB, PROMPT, LENGTH = 3, [2, 0, 1], 3
SMALL = dataclasses.replace(
    TARGET, vocab_size=VOCAB, num_hidden_layers=1, layer_types=TARGET.layer_types[:1]
)
SMALL_DRAFT = dataclasses.replace(
    DRAFT,
    vocab_size=VOCAB,
    draft_vocab_size=VOCAB,
    mask_token_id=0,
    block_size=2,
    target_layer_ids=(-1, 0),
    num_hidden_layers=1,
    layer_types=DRAFT.layer_types[:1],
)
TARGET_TENSORS, DRAFT_TENSORS = target_tensors(SMALL), draft_tensors(SMALL_DRAFT)
# So that the schedule below sometimes wants no draft, sometimes one and sometimes both.
DRAFT_TENSORS["confidence_head.proj.weight"] *= 2.0
DRAFT_TENSORS["confidence_head.proj.bias"] += 2.2

CASES = {
    "temperature-1": {},
    "all": {
        "temperature": 2.5,
        "top_k": 2,
        "min_p": 0.02,
        "repetition_penalty": 1.3,
        "presence_penalty": 0.4,
        "frequency_penalty": 0.3,
        "logit_bias": {1: 0.8},
    },
}
SCHEDULES = {
    "all-drafts": None,
    "some-drafts": ConfidenceSchedule(speed=((1, 1.0), (2, 0.66), (3, 0.55))),
}


def expected_law(params: SamplingParams) -> dict[tuple[int, ...], float]:
    model = target_model(config=SMALL, tensors=TARGET_TENSORS, taps=())
    out = {}
    for tokens in itertools.product(range(VOCAB), repeat=LENGTH):
        sequence = [*PROMPT, *tokens]
        passed = model.forward([Segment(sequence, 0, [0])], model.new_store(1, 16))
        logits = model.backend.host(model.logits(passed.hidden))
        chance = 1.0
        for index, token in enumerate(tokens):
            row = [float(logit) for logit in logits[len(PROMPT) - 1 + index]]
            chance *= naive(row, params, PROMPT, tokens[:index])[token]
        out[tokens] = chance
    return out


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("case", CASES)
def test_k2_the_law_of_an_engines_text_is_the_targets(
    case: str, schedule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    params = SamplingParams(max_tokens=LENGTH + 1, **CASES[case])  # type: ignore[arg-type]
    target = target_model(config=SMALL, tensors=TARGET_TENSORS, taps=(-1, 0))
    draft = draft_model(target, SMALL_DRAFT, DRAFT_TENSORS)
    engine = Engine(
        target,
        draft,
        engine_config(pages=4, reuse_prefixes=False, schedule=SCHEDULES[schedule]),
    )
    lengths: set[int] = set()
    choose = engine._round._lengths

    def noted(parts: Sequence[Work], made: Sequence[Proposal]) -> list[int]:
        chosen = choose(parts, made)
        if len(made[0].tokens) == 2:
            lengths.add(chosen[0])
        return chosen

    monkeypatch.setattr(engine._round, "_lengths", noted)

    def run(path: Path) -> tuple[int, ...]:
        request_id = engine.submit(PROMPT, params)
        request = engine._requests[request_id]
        request.choices = path
        while len(request.tokens) < len(PROMPT) + LENGTH:
            engine.step()
        engine.cancel(request_id)
        return tuple(request.tokens[len(PROMPT) : len(PROMPT) + LENGTH])

    got, expected = law(run), expected_law(params)
    # A law with all its mass on a few texts would not notice much.
    assert sum(chance > 0.01 for chance in expected.values()) > 5
    for tokens, chance in expected.items():
        assert abs(chance - got.get(tokens, 0.0)) < 2e-6, (tokens, chance, got.get(tokens))
    if SCHEDULES[schedule] is not None:
        assert len(lengths) > 1, "this schedule always does the same"
