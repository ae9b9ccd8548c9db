"""`/v1/chat/completions`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from dspark.runtime.request import TokenEvent
from dspark.runtime.serve.answer import begin, check_in_thread, respond
from dspark.runtime.serve.chat_schema import ChatReply, ChatRequest
from dspark.runtime.serve.errors import ApiError
from dspark.runtime.serve.generation import Choice, Gathered
from dspark.runtime.serve.json_body import JsonRoute
from dspark.runtime.serve.logprobs import chat_logprobs
from dspark.runtime.serve.prompts import Prompt, room
from dspark.runtime.serve.record import Record
from dspark.runtime.serve.service import Service


def chat_routes(service: Service) -> APIRouter:
    """The endpoint for conversations."""
    router = APIRouter(route_class=JsonRoute, tags=["text"])

    @router.post(
        "/v1/chat/completions",
        response_model=ChatReply,
        responses={200: {"content": {"text/event-stream": {}}}},
    )
    async def answer(request: Request, body: ChatRequest) -> Response:
        """Answers a conversation."""
        record = begin(service, request, body)
        field, asked = _asked(body)
        if body.top_logprobs is not None and not body.logprobs:
            raise ApiError(
                400,
                "`top_logprobs` needs `logprobs`",
                code="invalid_value",
                param="top_logprobs",
            )
        service.check_choices(1, body.choices)
        prompt = await asyncio.to_thread(_prompt, service, body)
        tokens = room(prompt, service.engine.engine.config.max_length, asked, field)
        alternatives = (body.top_logprobs or 0) if body.logprobs else None
        choices = [
            Choice(prompt.ids, body.sampling(tokens, alternatives, number), body.drafts)
            for number in range(body.choices)
        ]
        await check_in_thread(service, [(prompt, choice) for choice in choices])
        if service.settings.log_text:
            record.text["prompts"] = [prompt.text]
        return await respond(service, request, body, choices, _Shape(service, record, body))

    return router


def _asked(body: ChatRequest) -> tuple[str, int | None]:
    """How many tokens are asked for, and by which of the two names."""
    if body.max_tokens is None:
        return "max_completion_tokens", body.max_completion_tokens
    if body.max_completion_tokens not in (None, body.max_tokens):
        raise ApiError(
            400,
            "`max_tokens` and `max_completion_tokens` mean the same and differ",
            code="invalid_value",
            param="max_tokens",
        )
    return "max_tokens", body.max_tokens


def _prompt(service: Service, body: ChatRequest) -> Prompt:
    if service.template is None:
        raise ApiError(
            400,
            "the target has no chat template; start the server with `--chat-template FILE`, or use"
            " `/v1/completions`",
            code="no_chat_template",
            param="messages",
        )
    messages = [message.to_template() for message in body.messages]
    text = service.template.render(messages, body.chat_template_kwargs)
    # The template has written what the tokenizer would add.
    return Prompt(tuple(service.tokens.encode([text], special=False)[0]), "messages", text)


class _Shape:
    def __init__(self, service: Service, record: Record, body: ChatRequest) -> None:
        self._head = {
            "id": f"chatcmpl-{record.id}",
            "created": record.created,
            "model": service.model.name,
        }
        self._body = body
        self._tokens = service.tokens
        self._greeted: set[int] = set()

    def whole(self, gathered: Sequence[Gathered]) -> dict[str, Any]:
        choices = []
        for index, one in enumerate(gathered):
            message = {"role": "assistant", "content": one.text, "refusal": None}
            choices.append(
                {"index": index, "message": message} | self._rest(one, one.finish_reason)
            )
        return self._head | {"object": "chat.completion", "choices": choices}

    def chunks(self, index: int, event: TokenEvent) -> Iterator[dict[str, Any]]:
        if index not in self._greeted:
            self._greeted.add(index)
            yield self._chunk(index, {"role": "assistant", "content": ""}, Gathered(), None)
        news = Gathered(event.text, list(event.token_ids), list(event.logprobs))
        wanted = self._body.return_token_ids or self._body.logprobs
        if event.text or (wanted and event.token_ids):
            yield self._chunk(index, {"content": event.text}, news, None)
        if event.finish_reason is not None:
            yield self._chunk(index, {}, Gathered(), event.finish_reason)

    def last(self) -> dict[str, Any]:
        return self._head | {"object": "chat.completion.chunk", "choices": []}

    def _chunk(
        self, index: int, delta: dict[str, str], news: Gathered, finish_reason: str | None
    ) -> dict[str, Any]:
        choice = {"index": index, "delta": delta} | self._rest(news, finish_reason)
        return self._head | {"object": "chat.completion.chunk", "choices": [choice]}

    def _rest(self, news: Gathered, finish_reason: str | None) -> dict[str, Any]:
        logprobs = None
        if self._body.logprobs and news.token_ids:
            logprobs = chat_logprobs(news.notes, self._tokens)
        rest: dict[str, Any] = {"logprobs": logprobs, "finish_reason": finish_reason}
        return rest | {"token_ids": news.token_ids} if self._body.return_token_ids else rest
