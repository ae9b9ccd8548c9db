"""A pass's time, divided so that nothing is lost and nothing counted twice."""

from __future__ import annotations

from itertools import accumulate

import pytest

from dspark.runtime import timing
from dspark.runtime.statistics import EngineStatistics, RequestStatistics
from dspark.runtime.timing import PassClock


def clock(
    monkeypatch: pytest.MonkeyPatch, laps: list[float]
) -> tuple[PassClock, EngineStatistics, list[RequestStatistics]]:
    now = accumulate([100.0, *laps])
    monkeypatch.setattr(timing, "perf_counter", lambda: next(now))
    engine, requests = EngineStatistics(), [RequestStatistics(1), RequestStatistics(1)]
    return PassClock(engine, requests), engine, requests


def test_time_is_divided_by_weight(monkeypatch: pytest.MonkeyPatch) -> None:
    passing, engine, (first, second) = clock(monkeypatch, [4.0, 6.0, 1.0])
    passing.lap("draft_s", {0: 0, 1: 1})
    passing.lap("verify_s", {0: 1, 1: 5})
    passing.lap("host_s", {0: 1})
    assert (4.0, 6.0, 1.0) == (engine.draft_s, engine.verify_s, engine.host_s)
    assert (0.0, 1.0, 1.0) == (first.draft_s, first.verify_s, first.host_s)
    assert (4.0, 5.0, 0.0) == (second.draft_s, second.verify_s, second.host_s)


def test_a_phase_of_nobody_runs_into_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    passing, engine, (first, second) = clock(monkeypatch, [10.0])
    passing.lap("draft_s", {0: 0, 1: 0})
    passing.lap("draft_s", {})
    passing.lap("verify_s", {0: 1, 1: 1})
    assert (0.0, 10.0) == (engine.draft_s, engine.verify_s)
    assert 5.0 == first.verify_s == second.verify_s


def test_laps_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    passing, engine, (first, _) = clock(monkeypatch, [1.0, 2.0])
    passing.lap("draft_s", {0: 1})
    passing.lap("draft_s", {0: 1})
    assert 3.0 == engine.draft_s == first.draft_s
