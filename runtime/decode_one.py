"""One prompt from its first token to its last, with what it took."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter

from dspark.runtime.engine import Engine
from dspark.runtime.params import SamplingParams
from dspark.runtime.request import FinishReason
from dspark.runtime.statistics import RequestStatistics


@dataclass(frozen=True, slots=True)
class Decoded:
    """A prompt's continuation.

    `seconds` go from the prompt's arrival to the last token, `first_s` to the first one.
    """

    text: str
    token_ids: tuple[int, ...]
    finish_reason: FinishReason
    statistics: RequestStatistics
    seconds: float
    first_s: float


def decode_one(
    engine: Engine,
    prompt: Sequence[int],
    params: SamplingParams,
    *,
    drafts: int | None = None,
    show: Callable[[str], object] | None = None,
) -> Decoded:
    """Decodes `prompt` alone on `engine`; `show` gets the text piece by piece.

    Raises:
        InvalidRequest: see `Engine.submit`.
        NonFiniteLogits: see `Engine.step`.
    """
    started = perf_counter()
    request_id = engine.submit(prompt, params, drafts=drafts)
    statistics = engine.request_statistics(request_id)
    pieces: list[str] = []
    tokens: list[int] = []
    first: float | None = None
    reason: FinishReason | None = None
    try:
        while reason is None:
            for event in engine.step():
                if first is None:
                    first = perf_counter() - started
                tokens += event.token_ids
                pieces.append(event.text)
                reason = event.finish_reason
                if show is not None:
                    show(event.text)
    finally:
        # Ended already, unless the reader went away or the loop was interrupted.
        engine.cancel(request_id)
    seconds = perf_counter() - started
    # INVARIANT: a request ends with an event.
    assert first is not None
    return Decoded("".join(pieces), tuple(tokens), reason, statistics, seconds, first)
