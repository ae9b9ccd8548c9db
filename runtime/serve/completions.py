"""`/v1/completions`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from dspark.runtime.request import TokenEvent
from dspark.runtime.serve.answer import begin, check_in_thread, respond
from dspark.runtime.serve.completions_schema import CompletionReply, CompletionRequest
from dspark.runtime.serve.errors import ApiError
from dspark.runtime.serve.generation import Choice, Gathered
from dspark.runtime.serve.json_body import JsonRoute
from dspark.runtime.serve.logprobs import CompletionLogprobs
from dspark.runtime.serve.prompts import Prompt, completion_prompts, room
from dspark.runtime.serve.record import Record
from dspark.runtime.serve.service import Service

DEFAULT_TOKENS = 16


def completion_routes(service: Service) -> APIRouter:
    """The endpoint for texts to be continued."""
    router = APIRouter(route_class=JsonRoute, tags=["text"])

    @router.post(
        "/v1/completions",
        response_model=CompletionReply,
        responses={200: {"content": {"text/event-stream": {}}}},
    )
    async def complete(request: Request, body: CompletionRequest) -> Response:
        """Continues a text, or several."""
        record = begin(service, request, body)
        if body.echo and body.logprobs is not None:
            raise ApiError(
                400,
                "`echo` with `logprobs` is not supported: log-probabilities of a prompt are not"
                " computed",
                code="unsupported_parameter",
                param="logprobs",
            )
        prompts = await asyncio.to_thread(completion_prompts, body.prompt, service.tokens)
        service.check_choices(len(prompts), body.choices)
        choices = [
            (prompt, _choice(service, body, prompt, number))
            for prompt in prompts
            for number in range(body.choices)
        ]
        await check_in_thread(service, choices)
        if service.settings.log_text:
            record.text["prompts"] = [_text(service, prompt) for prompt in prompts]
        echoed = [_text(service, prompt) if body.echo else "" for prompt, _ in choices]
        shape = _Shape(service, record, body, echoed)
        return await respond(service, request, body, [choice for _, choice in choices], shape)

    return router


def _choice(service: Service, body: CompletionRequest, prompt: Prompt, number: int) -> Choice:
    tokens = room(prompt, service.engine.engine.config.max_length, body.max_tokens, "max_tokens")
    if body.max_tokens is None:
        tokens = min(tokens, DEFAULT_TOKENS)
    return Choice(prompt.ids, body.sampling(tokens, body.logprobs, number), body.drafts)


def _text(service: Service, prompt: Prompt) -> str:
    return service.tokens.decode(prompt.ids) if prompt.text is None else prompt.text


class _Shape:
    def __init__(
        self, service: Service, record: Record, body: CompletionRequest, echoed: Sequence[str]
    ) -> None:
        self._head = {
            "id": f"cmpl-{record.id}",
            "object": "text_completion",
            "created": record.created,
            "model": service.model.name,
        }
        self._body = body
        self._echoed = list(echoed)
        self._logprobs = [CompletionLogprobs(service.tokens) for _ in echoed]

    def whole(self, gathered: Sequence[Gathered]) -> dict[str, Any]:
        choices = [
            self._piece(index, self._echoed[index] + one.text, one, one.finish_reason)
            for index, one in enumerate(gathered)
        ]
        return self._head | {"choices": choices}

    def chunks(self, index: int, event: TokenEvent) -> Iterator[dict[str, Any]]:
        news = Gathered(event.text, list(event.token_ids), list(event.logprobs))
        text = self._echoed[index] + event.text
        self._echoed[index] = ""
        wanted = self._body.return_token_ids or self._body.logprobs is not None
        if text or (wanted and event.token_ids):
            yield self._head | {"choices": [self._piece(index, text, news, None)]}
        if event.finish_reason is not None:
            end = self._piece(index, "", Gathered(), event.finish_reason)
            yield self._head | {"choices": [end]}

    def last(self) -> dict[str, Any]:
        return self._head | {"choices": []}

    def _piece(
        self, index: int, text: str, news: Gathered, finish_reason: str | None
    ) -> dict[str, Any]:
        logprobs = None
        if self._body.logprobs is not None and news.token_ids:
            logprobs = self._logprobs[index].add(news.notes)
        piece: dict[str, Any] = {
            "index": index,
            "text": text,
            "logprobs": logprobs,
            "finish_reason": finish_reason,
        }
        return piece | {"token_ids": news.token_ids} if self._body.return_token_ids else piece
