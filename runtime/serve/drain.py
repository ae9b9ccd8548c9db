"""The end of a service: what is under way may finish, for a while."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from dspark.runtime.serve.errors import stopping


class Drain:
    """Tells every answer under way to end once the time for it is over."""

    def __init__(self) -> None:
        self._inboxes: set[asyncio.Queue[Any]] = set()

    @contextmanager
    def interrupting(self, inbox: asyncio.Queue[Any]) -> Iterator[None]:
        """While the context lasts, `inbox` gets the error that ends its answer."""
        self._inboxes.add(inbox)
        try:
            yield
        finally:
            self._inboxes.discard(inbox)

    def begin(self, seconds: float) -> None:
        """Starts the clock. Call it from the event loop's thread."""
        asyncio.get_running_loop().call_later(seconds, self._interrupt)

    def _interrupt(self) -> None:
        for inbox in self._inboxes:
            inbox.put_nowait(stopping())
