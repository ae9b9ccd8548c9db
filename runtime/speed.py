"""How fast the target is by the number of tokens in a pass, for the confidence schedule."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter

from dspark.runtime.backends.base import KvStore
from dspark.runtime.models.qwen3 import Qwen3Target
from dspark.runtime.models.rows import Segment

_REPEATS = 5


def measure_speed(
    target: Qwen3Target, sizes: Sequence[int], *, context: int = 0
) -> tuple[tuple[int, float], ...]:
    """Points (tokens in a pass, passes per second) as `ConfidenceSchedule.speed` takes them.

    Each token is a request of its own behind `context` positions. The target's own cache is not
    touched. Of several runs the fastest counts, since whatever else the machine does only slows.
    """
    page_size = context + 1
    most = max(sizes)
    store = target.new_store(most, page_size)
    for page in range(most):
        if context:
            target.forward([Segment([0] * context, 0, [page])], store)
    points: list[tuple[int, float]] = []
    for size in sorted(set(sizes)):
        segments = [Segment([0], context, [page]) for page in range(size)]
        seconds = min(_seconds(target, segments, store) for _ in range(_REPEATS))
        points.append((size, 1.0 / seconds))
    return tuple(points)


def _seconds(target: Qwen3Target, segments: Sequence[Segment], store: KvStore) -> float:
    started = perf_counter()
    with target.backend.session():
        logits = target.logits(target.forward(segments, store).hidden)
        # Waits for the device, which may run behind.
        target.backend.argmax(logits)
    return perf_counter() - started
