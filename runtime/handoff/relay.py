"""One HTTP request on its way to a replica and back, and what the client hears if that dies."""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from dspark.runtime.serve.errors import ApiError

SESSION = "x-session-id"
"""The header that names a conversation; without it the prompt's beginning does."""
_BEGINNING = 256
"""Characters, or token ids, of a prompt that say which conversation it belongs to."""

Translate = Callable[[Exception], ApiError | None]


@dataclass(frozen=True, slots=True)
class Call:
    """A request whose body has been read: plain data, since it goes to another process."""

    method: str
    path: str
    query: bytes
    headers: tuple[tuple[bytes, bytes], ...]
    client: tuple[str, int] | None
    body: bytes

    @classmethod
    def of(cls, scope: Scope, body: bytes) -> Call:
        """The request of an ASGI scope."""
        headers = tuple((bytes(name), bytes(value)) for name, value in scope["headers"])
        client = None if scope.get("client") is None else tuple(scope["client"])
        return cls(scope["method"], scope["path"], scope["query_string"], headers, client, body)

    @property
    def scope(self) -> dict[str, Any]:
        """The ASGI scope of the same request."""
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": self.method,
            "scheme": "http",
            "path": self.path,
            "raw_path": self.path.encode(),
            "root_path": "",
            "query_string": self.query,
            "headers": list(self.headers),
            "client": self.client,
            "server": None,
        }

    @property
    def session(self) -> str:
        """What requests have in common that should meet the same replica's cache, or nothing.

        The turns of a conversation begin alike: with everything up to the first thing the user
        said.
        """
        named = Headers(raw=list(self.headers)).get(SESSION)
        beginning = named or _beginning(self.body)
        return (
            hashlib.blake2s(beginning.encode("utf-8", "replace")).hexdigest() if beginning else ""
        )


def _beginning(body: bytes) -> str:
    try:
        request = json.loads(body)
    except (ValueError, RecursionError):
        return ""  # the replica refuses it by name
    if not isinstance(request, Mapping):
        return ""
    messages, prompt = request.get("messages"), request.get("prompt")
    if isinstance(messages, list):
        return json.dumps(_opening(messages))
    if isinstance(prompt, list) and prompt and not isinstance(prompt[0], int):
        prompt = prompt[0]
    return json.dumps(prompt[:_BEGINNING]) if isinstance(prompt, str | list) and prompt else ""


def _opening(messages: list[Any]) -> list[Any]:
    opening = []
    for message in messages:
        opening.append(message)
        if isinstance(message, Mapping) and message.get("role") == "user":
            break
    return opening


class Relayed(Response):
    """Sends what a replica answers, as it comes.

    `translate` says what a failure of the replica is called; one that comes once an event stream
    has begun is an event of it, and one in the middle of anything else breaks the connection.
    """

    def __init__(self, messages: AsyncIterator[Message], translate: Translate) -> None:
        super().__init__()
        self._messages = messages
        self._translate = translate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        events = None
        try:
            async for message in self._messages:
                if message["type"] == "http.response.start":
                    kind = Headers(raw=message["headers"]).get("content-type", "")
                    events = kind.startswith("text/event-stream")
                await send(message)
        except Exception as failure:
            error = self._translate(failure)
            if error is None or events is False:
                raise
            if events is None:
                await error.response()(scope, receive, send)
                return
            for data in (json.dumps(error.body()), "[DONE]"):
                event = f"data: {data}\n\n".encode()
                await send({"type": "http.response.body", "body": event, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
