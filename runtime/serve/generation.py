"""The choices of one request on their way through the engine, as one stream of news."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from time import monotonic

from dspark import DsparkError
from dspark.runtime.errors import InvalidRequest
from dspark.runtime.params import SamplingParams
from dspark.runtime.request import TokenEvent
from dspark.runtime.sampling import TokenLogprob
from dspark.runtime.serve.errors import ApiError, engine_failed, not_running, stopping, timed_out
from dspark.runtime.serve.record import Record
from dspark.runtime.serve.service import Service


@dataclass(frozen=True, slots=True)
class Choice:
    """One choice of one prompt, as the engine is asked for it."""

    prompt: tuple[int, ...]
    params: SamplingParams
    drafts: int | None


News = tuple[int, TokenEvent]


async def generate(
    service: Service, choices: Sequence[Choice], record: Record
) -> AsyncGenerator[News, None]:
    """Each choice's events as they come, with its index; closing this ends them all at once.

    Raises:
        ApiError: there is no room (429), it took too long (504), the engine refused (400) or
            failed (500), or the server stops (503).
    """
    if not service.engine.running:
        raise not_running()
    with service.admission.admitted(len(choices)):
        inbox: asyncio.Queue[News | Exception] = asyncio.Queue()
        epoch = service.health.epoch
        deadline = record.started + service.settings.request_timeout
        clocks = [_Clock(service, record) for _ in choices]
        tasks = [
            asyncio.create_task(_pump(service, index, choice, inbox))
            for index, choice in enumerate(choices)
        ]
        left = len(choices)
        with service.drain.interrupting(inbox):
            try:
                while left:
                    index, event = await _next(service, inbox, deadline)
                    clocks[index].tick(len(event.token_ids))
                    left -= event.finish_reason is not None
                    yield index, event
                service.health.succeeded(epoch)
            finally:
                for task in tasks:
                    task.cancel()
                # Their pages are free once they have ended. Those of choices that ended by
                # themselves are free already, and the answer need not wait for a pass of others.
                if left:
                    await asyncio.wait(tasks)


async def _pump(
    service: Service, index: int, choice: Choice, inbox: asyncio.Queue[News | Exception]
) -> None:
    stream = service.engine.stream(choice.prompt, choice.params, drafts=choice.drafts)
    try:
        async with aclosing(stream):
            async for event in stream:
                inbox.put_nowait((index, event))
    except Exception as error:  # noqa: BLE001 - the reader raises it
        inbox.put_nowait(error)


async def _next(service: Service, inbox: asyncio.Queue[News | Exception], deadline: float) -> News:
    try:
        async with asyncio.timeout(deadline - monotonic()):
            news = await inbox.get()
    except TimeoutError:
        raise timed_out(service.settings.request_timeout) from None
    if not isinstance(news, Exception):
        if news[1].finish_reason == "cancelled":
            # Not by us, or nobody would be reading.
            raise stopping()
        return news
    if isinstance(news, ApiError):
        raise news
    if isinstance(news, InvalidRequest):
        raise ApiError(400, str(news), code="invalid_value", param=news.param) from None
    # What a driver or a library says is for the operator, not for the caller.
    reason = str(news) if isinstance(news, DsparkError) else "an error that its log describes"
    service.health.failed(reason)
    service.log("engine_failed", error=repr(news))
    raise engine_failed(reason) from news


@dataclass(slots=True)
class Gathered:
    """All of one choice."""

    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    notes: list[TokenLogprob] = field(default_factory=list)
    finish_reason: str | None = None


async def gather(news: AsyncGenerator[News, None], choices: int) -> list[Gathered]:
    """What each choice adds up to, once all have ended."""
    gathered = [Gathered() for _ in range(choices)]
    async with aclosing(news):
        async for index, event in news:
            one = gathered[index]
            one.text += event.text
            one.token_ids += event.token_ids
            one.notes += event.logprobs
            one.finish_reason = event.finish_reason
    return gathered


class _Clock:
    """Times one choice's tokens. Those of one round come together and share the time it took."""

    def __init__(self, service: Service, record: Record) -> None:
        self._metrics = service.metrics
        self._record = record
        self._last: float | None = None

    def tick(self, tokens: int) -> None:
        """Notes that this many tokens have come."""
        if not tokens:
            return
        now = monotonic()
        self._record.completion_tokens += tokens
        self._metrics.returned.inc(tokens)
        if self._last is None:
            waited = now - self._record.started
            self._metrics.first_token.observe(waited)
            if self._record.first_token is None:
                self._record.first_token = waited
        else:
            for _ in range(tokens):
                self._metrics.inter_token.observe((now - self._last) / tokens)
        self._last = now
