"""A pass's time, booked by phase on the engine and in shares on the requests that took part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from time import perf_counter
from typing import Literal

from dspark.runtime.statistics import EngineStatistics, RequestStatistics

Phase = Literal["draft_s", "verify_s", "host_s"]


class PassClock:
    """Starts with a pass; `lap` books what has gone by since the lap before."""

    def __init__(self, engine: EngineStatistics, requests: Sequence[RequestStatistics]) -> None:
        self._engine = engine
        self._requests = requests
        self._last = perf_counter()

    def lap(self, phase: Phase, weights: Mapping[int, int]) -> None:
        """Books the time on `phase`, and on the requests of these numbers in proportion.

        Without a weight above 0 the phase did not take place, and its time runs into the next.
        """
        total = sum(weights.values())
        if not total:
            return
        now = perf_counter()
        seconds, self._last = now - self._last, now
        _add(self._engine, phase, seconds)
        for number, weight in weights.items():
            _add(self._requests[number], phase, seconds * weight / total)


def _add(counts: EngineStatistics | RequestStatistics, phase: Phase, seconds: float) -> None:
    setattr(counts, phase, getattr(counts, phase) + seconds)
