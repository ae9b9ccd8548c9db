"""Long runs: nothing grows, nothing drifts, every page comes back."""

from __future__ import annotations

import dataclasses
import gc
import resource

import numpy as np
import pytest

from dspark.runtime.params import SamplingParams
from tests.runtime.tiny import PLAIN_DRAFT, make_engine, random_prompts

PROMPTS = random_prompts(16, longest=30)


def soak(rounds: int) -> tuple[int, int]:
    """Peak memory, in KiB, when a quarter is over and at the end."""
    random = np.random.default_rng(1)
    engine = make_engine(draft_config=PLAIN_DRAFT, max_batch=4, pages=48)
    reference = make_engine(False).generate(
        [PROMPTS[0]], SamplingParams(max_tokens=20, temperature=0.0)
    )[0]
    early = 0
    while engine.statistics.passes < rounds:
        while len(engine._requests) < 5:
            params = SamplingParams(max_tokens=int(random.integers(1, 40)), temperature=1.0)
            drafts = int(random.integers(0, 6))
            engine.submit(PROMPTS[int(random.integers(16))], params, drafts=drafts)
        engine.step()
        if random.random() < 0.02:
            engine.cancel(int(random.choice(list(engine._requests))))
        if engine.statistics.passes == rounds // 4:
            gc.collect()
            early = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for request_id in list(engine._requests):
        engine.cancel(request_id)
    assert 0 == engine.pages_held
    assert 48 == engine._pool.available
    assert engine.statistics.completion_tokens > rounds
    # No drift: a request behind all that gets what it would have got first.
    late = engine.generate([PROMPTS[0]], SamplingParams(max_tokens=20, temperature=0.0))[0]
    assert reference.token_ids == late.token_ids
    gc.collect()
    return early, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def test_l4_a_short_soak() -> None:
    early, end = soak(600)
    # Kernels are still being compiled for row counts not seen before.
    assert end - early < 12_000, f"peak memory grew from {early} to {end} KiB"


@pytest.mark.slow
def test_l4_a_long_soak() -> None:
    early, end = soak(20_000)
    assert end - early < 4096, f"peak memory grew from {early} to {end} KiB"


@pytest.mark.slow
def test_h1_greedy_text_is_the_same_for_200_prompts_of_256_tokens() -> None:
    prompts = random_prompts(200, seed=21, longest=60)
    params = SamplingParams(max_tokens=256, temperature=0.0)
    expected = make_engine(False, max_length=400, pages=300, max_batch=8).generate(prompts, params)
    got = make_engine(
        draft_config=dataclasses.replace(PLAIN_DRAFT), max_length=400, pages=300, max_batch=12
    ).generate(prompts, params)
    assert [c.token_ids for c in expected] == [c.token_ids for c in got]
