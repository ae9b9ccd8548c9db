"""How much is under way at a time: what is more is turned away at once, not kept waiting."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic

from dspark.runtime.serve.errors import ApiError

_RECENT = 64
_LONGEST_WAIT = 60


class Admission:
    """Counts the choices under way, of which `batch` run and `queue` more may wait."""

    def __init__(self, batch: int, queue: int) -> None:
        self._batch = batch
        self.capacity = batch + queue
        self.under_way = 0
        self._seconds: deque[float] = deque(maxlen=_RECENT)

    @contextmanager
    def admitted(self, choices: int) -> Iterator[None]:
        """Room for a request's `choices` while the context lasts.

        Raises:
            ApiError: 429 `queue_full`, with how long to wait in `Retry-After`.
        """
        if self.under_way + choices > self.capacity:
            raise ApiError(
                429,
                f"{self.under_way} requests are under way, and {self.capacity} is the most"
                " that this server takes",
                code="queue_full",
                headers={"retry-after": str(self.retry_after())},
            )
        self.under_way += choices
        started = monotonic()
        try:
            yield
        finally:
            self.under_way -= choices
            self._seconds.append(monotonic() - started)

    def retry_after(self) -> int:
        """In how many whole seconds a place may be free: what a place took lately, per batch."""
        if not self._seconds:
            return 1
        took = sum(self._seconds) / len(self._seconds)
        return min(_LONGEST_WAIT, max(1, math.ceil(took / self._batch)))
