"""A finished request as `Engine.generate` returns it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dspark.runtime.request import FinishReason, Request, TokenEvent
from dspark.runtime.sampling import TokenLogprob
from dspark.runtime.statistics import RequestStatistics


@dataclass(frozen=True, slots=True)
class Completion:
    """A finished request."""

    token_ids: tuple[int, ...]
    text: str
    finish_reason: FinishReason
    logprobs: tuple[TokenLogprob, ...]
    statistics: RequestStatistics


def completion(request: Request, events: Sequence[TokenEvent]) -> Completion:
    """What `events`, which are all of the finished `request`, add up to."""
    # INVARIANT: only a request that has ended is complete.
    assert request.finish_reason is not None
    return Completion(
        tuple(token for event in events for token in event.token_ids),
        "".join(event.text for event in events),
        request.finish_reason,
        tuple(note for event in events for note in event.logprobs),
        request.statistics,
    )
