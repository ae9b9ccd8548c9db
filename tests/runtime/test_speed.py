"""The measured curve is one that a schedule can use."""

from __future__ import annotations

import pytest

from dspark.runtime import speed
from dspark.runtime.confidence import ConfidenceSchedule
from dspark.runtime.params import SamplingParams
from tests.runtime.tiny import engine_config, make_engine, random_prompts, target_model


@pytest.mark.parametrize("context", [0, 21])
def test_the_fastest_of_several_runs_counts(context: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # Each pass takes as many ticks as it has been asked for before: the first is the fastest.
    ticks = iter(tick * (tick + 1) // 2 for tick in range(1, 10_000))
    monkeypatch.setattr(speed, "perf_counter", lambda: float(next(ticks)))
    points = speed.measure_speed(target_model(), [4, 1, 4, 2], context=context)
    assert [1, 2, 4] == [size for size, _ in points]
    assert [1 / 2, 1 / 12, 1 / 22] == [rate for _, rate in points]


def test_an_engine_runs_by_a_measured_curve() -> None:
    params = SamplingParams(max_tokens=12, temperature=0.0)
    prompts = random_prompts(3)
    curve = speed.measure_speed(target_model(), [1, 2, 8, 16], context=5)
    scheduled = make_engine(schedule=ConfidenceSchedule(speed=curve)).generate(prompts, params)
    plain = make_engine(False).generate(prompts, params)
    assert [c.token_ids for c in plain] == [c.token_ids for c in scheduled]
    assert engine_config().schedule is None
