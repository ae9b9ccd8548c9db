"""Who is served next: admission by pages, and how many tokens each request brings to a pass."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from dspark.runtime.cache import PagePool
from dspark.runtime.request import Request


@dataclass(frozen=True, slots=True)
class Work:
    """A request's part in a pass: this many of its pending tokens, from the first on.

    `decides` says that they reach the newest token, so that the pass chooses the next one.
    """

    request: Request
    tokens: int
    decides: bool


class Scheduler:
    """First come, first served, up to `max_batch` requests at a time.

    A request is admitted once the pages for all it may ever need are there, so that none is put
    out again half-way. Prompts are read in chunks: a pass holds at most `prefill_tokens` of them,
    beside the requests that are already decoding.
    """

    def __init__(
        self, pool: PagePool, *, max_batch: int, prefill_tokens: int, lookahead: int
    ) -> None:
        self._pool = pool
        self._max_batch = max_batch
        self._prefill_tokens = prefill_tokens
        self._lookahead = lookahead
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []

    def positions(self, request: Request) -> int:
        """How many positions' keys and values the request gets room for.

        Those of its tokens, and of a last draft block behind them as far as there are pages at
        all: where they end, the target goes on alone.
        """
        needed = len(request.tokens) + request.limit
        lookahead = self._lookahead if request.drafts else 0
        return max(needed, min(needed + lookahead, self._pool.count * self._pool.page_size))

    def fits(self, request: Request) -> bool:
        """Whether the request could be admitted if it were alone."""
        return self._pool.pages_for(self.positions(request)) <= self._pool.count

    def admit(self) -> list[Request]:
        """Moves requests from waiting to running as far as room allows; returns them."""
        admitted: list[Request] = []
        while self.waiting and len(self.running) < self._max_batch:
            request = self.waiting[0]
            # Pages without draft context must not end up under a request that drafts.
            kind = "drafting" if request.drafts else "plain"
            table = self._pool.open(request.tokens, self.positions(request), kind)
            if table is None:
                break
            request.table = table
            request.statistics.cached_tokens = table.length
            admitted.append(self.waiting.popleft())
            self.running.append(request)
        return admitted

    def work(self) -> list[Work]:
        """The next pass: every decoding request, and as much of the prompts as may go along."""
        budget = self._prefill_tokens
        parts: list[Work] = []
        for request in self.running:
            if request.pending == 1:
                parts.append(Work(request, 1, decides=True))
            elif budget > 0:
                tokens = min(request.pending, budget)
                budget -= tokens
                parts.append(Work(request, tokens, decides=tokens == request.pending))
        return parts

    def remove(self, request: Request) -> None:
        """Takes the request out, wherever it is, and gives its pages back."""
        if request in self.running:
            self.running.remove(request)
            self._pool.close(request.held)
        else:
            self.waiting.remove(request)
