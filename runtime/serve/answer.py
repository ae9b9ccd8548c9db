"""From the choices of a request to its answer, whole or streamed, whichever endpoint asks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Protocol

from fastapi import Request
from starlette.responses import JSONResponse, Response

from dspark.runtime.request import TokenEvent
from dspark.runtime.serve.disconnect import unless_gone
from dspark.runtime.serve.errors import ApiError
from dspark.runtime.serve.generation import Choice, Gathered, News, gather, generate
from dspark.runtime.serve.prompts import Prompt, check
from dspark.runtime.serve.record import Record, record_of
from dspark.runtime.serve.schema import TextRequest, Usage
from dspark.runtime.serve.service import Service
from dspark.runtime.serve.stream import EventStream


class Shape(Protocol):
    """How an endpoint writes its answer."""

    def whole(self, gathered: Sequence[Gathered]) -> dict[str, Any]:
        """The answer in one piece, but for its usage."""
        ...

    def chunks(self, index: int, event: TokenEvent) -> Iterator[dict[str, Any]]:
        """The chunks of a stream that one event makes."""
        ...

    def last(self) -> dict[str, Any]:
        """A chunk without choices, which carries the usage."""
        ...


def begin(service: Service, request: Request, body: TextRequest) -> Record:
    """The request's record, once what can be said without its prompts has been checked.

    Raises:
        ApiError: another model, or options for a stream that is none.
    """
    record = record_of(request.scope)
    record.stream = bool(body.stream)
    service.check_model(body.model)
    if body.stream_options is not None and not body.stream:
        raise ApiError(
            400,
            "`stream_options` is only for requests with `stream`",
            code="invalid_value",
            param="stream_options",
        )
    return record


async def respond(
    service: Service, request: Request, body: TextRequest, choices: Sequence[Choice], shape: Shape
) -> Response:
    """The answer. Before its first byte is sent, the first tokens are there, or the error is."""
    record = record_of(request.scope)
    record.choices = len(choices)
    # Choices of one prompt share it.
    record.prompt_tokens = sum(len(choice.prompt) for choice in choices[:: body.choices])
    news = generate(service, choices, record)
    if not body.stream:
        gathered = await unless_gone(request.receive, gather(news, len(choices)))
        if service.settings.log_text:
            record.text["answers"] = [one.text for one in gathered]
        return JSONResponse(shape.whole(gathered) | {"usage": _usage(record)})
    first = await unless_gone(request.receive, anext(news))
    if service.settings.log_text:
        record.text["answers"] = [""] * len(choices)
    with_usage = body.stream_options is not None and bool(body.stream_options.include_usage)
    until = record.started + service.settings.request_timeout
    return EventStream(_chunks(first, news, shape, record, with_usage), record, until)


async def _chunks(
    first: News, rest: AsyncGenerator[News, None], shape: Shape, record: Record, with_usage: bool
) -> AsyncGenerator[Mapping[str, Any], None]:
    extra: dict[str, Any] = {"usage": None} if with_usage else {}
    async with aclosing(rest):
        for chunk in _noted(first, shape, record):
            yield chunk | extra
        async for news in rest:
            for chunk in _noted(news, shape, record):
                yield chunk | extra
    if with_usage:
        yield shape.last() | {"usage": _usage(record)}


def _noted(news: News, shape: Shape, record: Record) -> Iterator[dict[str, Any]]:
    index, event = news
    if record.text:
        record.text["answers"][index] += event.text
    return shape.chunks(index, event)


def _usage(record: Record) -> dict[str, int]:
    return Usage.of(record.prompt_tokens, record.completion_tokens).model_dump()


async def check_in_thread(service: Service, choices: Sequence[tuple[Prompt, Choice]]) -> None:
    """Holds every choice against the engine's limits, off the event loop: prompts are long."""
    pairs = [(prompt, choice.params) for prompt, choice in choices]
    await asyncio.to_thread(check, pairs, service.engine.engine)
