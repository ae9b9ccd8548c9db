"""The engine for asyncio: one task steps it in a thread, any number of tasks read from it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Self, TypeVar

from dspark.runtime.engine import Engine
from dspark.runtime.params import SamplingParams
from dspark.runtime.request import TokenEvent

T = TypeVar("T")


class AsyncEngine:
    """Serves many tasks from one `Engine`, which from then on belongs to it.

    async with AsyncEngine(engine) as service:
        async for event in service.stream(prompt, params):
            ...

    The engine lives in one thread of its own, so that the event loop never waits for a pass.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="dspark-engine")
        self._queues: dict[int, asyncio.Queue[TokenEvent | BaseException]] = {}
        self._work = asyncio.Event()
        self._stepping: asyncio.Task[None] | None = None

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
        self._stepping.cancel()
        await asyncio.wait([self._stepping])
        # The thread may be in a pass, which cannot be interrupted; unfinished requests end with it.
        await asyncio.to_thread(self._thread.shutdown)

    async def stream(
        self, prompt: Sequence[int], params: SamplingParams, *, drafts: int | None = None
    ) -> AsyncIterator[TokenEvent]:
        """The events of one request as they come; closing the iterator cancels the request.

        Raises:
            InvalidRequest: see `Engine.submit`.
            NonFiniteLogits: see `Engine.step`; every unfinished request gets it.
        """
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
            await self._forget(submitted)

    async def _forget(self, submitted: asyncio.Future[int]) -> None:
        """Cancels the request, even one whose caller left before the engine had answered."""
        await asyncio.wait([submitted])
        if submitted.exception() is None:
            request_id = submitted.result()
            del self._queues[request_id]
            await self._in_thread(lambda: self.engine.cancel(request_id))

    async def _in_thread(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, call)

    async def _run(self) -> None:
        while True:
            await self._work.wait()
            self._work.clear()
            while await self._in_thread(lambda: self.engine.busy):
                try:
                    events = await self._in_thread(self.engine.step)
                except Exception as error:  # noqa: BLE001 - each reader raises it
                    for queue in list(self._queues.values()):
                        queue.put_nowait(error)
                    break
                for event in events:
                    if event.request_id in self._queues:
                        self._queues[event.request_id].put_nowait(event)
