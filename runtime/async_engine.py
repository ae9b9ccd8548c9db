"""The engine for asyncio: one task steps it in a thread, any number of tasks read from it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Self, TypeVar

from dspark.runtime.engine import Engine
from dspark.runtime.errors import InvalidRequest
from dspark.runtime.params import SamplingParams
from dspark.runtime.request import TokenEvent

T = TypeVar("T")


class AsyncEngine:
    """Serves many tasks from one `Engine`, which from then on belongs to it.

    async with AsyncEngine(engine) as service:
        async for event in service.stream(prompt, params):
            ...

    The engine lives in one thread of its own, so that the event loop never waits for a pass.
    Leaving the context cancels what is unfinished: its readers get a last event that says so.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="dspark-engine")
        self._queues: dict[int, asyncio.Queue[TokenEvent | BaseException]] = {}
        self._work = asyncio.Event()
        self._stepping: asyncio.Task[None] | None = None
        self._leaving: set[asyncio.Task[None]] = set()
        self._closing = False
        self._closed = False

    async def __aenter__(self) -> Self:
        self._stepping = asyncio.create_task(self._run())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # INVARIANT: a context is left once, after it was entered.
        assert self._stepping is not None
        self._closing = True
        self._work.set()
        # The thread may be in a pass, which cannot be interrupted.
        await asyncio.wait([self._stepping])
        self._tell(await self._in_thread(self._cancel_all))
        self._closed = True
        await asyncio.to_thread(self._thread.shutdown)

    @property
    def running(self) -> bool:
        """Whether its context is entered, so that requests get somewhere."""
        return self._stepping is not None and not self._stepping.done() and not self._closing

    def _cancel_all(self) -> list[TokenEvent]:
        events = [self.engine.cancel(request_id) for request_id in list(self._queues)]
        return [event for event in events if event is not None]

    async def stream(
        self, prompt: Sequence[int], params: SamplingParams, *, drafts: int | None = None
    ) -> AsyncGenerator[TokenEvent, None]:
        """The events of one request as they come; closing the iterator cancels the request.

        Raises:
            InvalidRequest: the engine is shutting down; or see `Engine.submit`.
            NonFiniteLogits: see `Engine.step`; every unfinished request gets it.
        """
        if self._closing:
            raise InvalidRequest("the engine is shutting down")
        queue: asyncio.Queue[TokenEvent | BaseException] = asyncio.Queue()

        def submit() -> int:
            request_id = self.engine.submit(prompt, params, drafts=drafts)
            # Here, before the thread makes another step, so that no event finds no queue.
            self._queues[request_id] = queue
            return request_id

        submitted = asyncio.ensure_future(self._in_thread(submit))
        try:
            await asyncio.shield(submitted)
            self._work.set()
            while True:
                event = await queue.get()
                if isinstance(event, BaseException):
                    raise event
                yield event
                if event.finish_reason is not None:
                    return
        finally:
            # Whoever leaves may be cancelled again while the engine is busy (anyio's scopes do it
            # at every step), so this goes on by itself.
            leaving = asyncio.create_task(self._forget(submitted))
            self._leaving.add(leaving)
            leaving.add_done_callback(self._leaving.discard)
            await asyncio.shield(leaving)

    async def _forget(self, submitted: asyncio.Future[int]) -> None:
        """Cancels the request, even one whose caller left before the engine had answered."""
        await asyncio.wait([submitted])
        if submitted.exception() is None:
            request_id = submitted.result()
            del self._queues[request_id]
            if not self._closed:
                await self._in_thread(lambda: self.engine.cancel(request_id))

    async def _in_thread(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, call)

    async def _run(self) -> None:
        while not self._closing:
            await self._work.wait()
            self._work.clear()
            await self._step_while_busy()

    async def _step_while_busy(self) -> None:
        while not self._closing and await self._in_thread(lambda: self.engine.busy):
            try:
                events = await self._in_thread(self.engine.step)
            except Exception as error:  # noqa: BLE001 - each reader raises it
                for queue in list(self._queues.values()):
                    queue.put_nowait(error)
                return
            self._tell(events)

    def _tell(self, events: Sequence[TokenEvent]) -> None:
        for event in events:
            if event.request_id in self._queues:
                self._queues[event.request_id].put_nowait(event)
