"""Questions to the hub, which may take as long as they like without holding anything up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from threading import Thread
from typing import Generic, TypeVar

from dspark.runtime.serve.errors import ApiError, timed_out
from dspark.runtime.serve.service import Service

T = TypeVar("T")

_AT_ONCE = 16


class Lookups(Generic[T]):
    """Runs each question in a thread of its own, `_AT_ONCE` at the most.

    Nothing can end a thread that waits for a server, so one counts until it has ended by itself,
    though nobody may be waiting for it any more; and the end of the process waits for none.
    """

    def __init__(self) -> None:
        self._running = 0

    async def ask(self, service: Service, question: Callable[[], T]) -> T:
        """The answer.

        Raises:
            ApiError: 429, too many are being asked; 504, it took longer than a request may; 503,
                the service ends.
        """
        if self._running >= _AT_ONCE:
            raise ApiError(
                429,
                f"{self._running} repos are being looked up, and no more are at a time",
                code="queue_full",
                headers={"retry-after": "1"},
            )
        loop = asyncio.get_running_loop()
        inbox: asyncio.Queue[T | Exception] = asyncio.Queue()

        def ended(outcome: T | Exception) -> None:
            self._running -= 1
            inbox.put_nowait(outcome)

        def work() -> None:
            outcome: T | Exception
            try:
                outcome = question()
            except Exception as error:  # noqa: BLE001 - raised again by whoever waits
                outcome = error
            with suppress(RuntimeError):  # the loop has been closed: the process ends
                loop.call_soon_threadsafe(ended, outcome)

        self._running += 1
        Thread(target=work, name="dspark-hub", daemon=True).start()
        seconds = service.settings.request_timeout
        with service.drain.interrupting(inbox):
            try:
                outcome = await asyncio.wait_for(inbox.get(), seconds)
            except TimeoutError:
                raise timed_out(seconds) from None
        if isinstance(outcome, Exception):
            raise outcome
        return outcome
