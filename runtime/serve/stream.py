"""An answer as server-sent events."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from time import monotonic
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from dspark.runtime.serve.disconnect import unless_gone
from dspark.runtime.serve.errors import ApiError
from dspark.runtime.serve.record import Record

Chunks = AsyncGenerator[Mapping[str, Any], None]

# For a client that reads its last chunk slowly, once everything has been made.
_READING_TIME = 10.0


class EventStream(Response):
    """Sends each chunk as an event, then `[DONE]`.

    An error that comes once the answer has begun is an event too. A client that hangs up, or has
    not read everything some time after `until`, ends the chunks.
    """

    media_type = "text/event-stream"

    def __init__(self, chunks: Chunks, record: Record, until: float) -> None:
        # Proxies that collect an answer before they pass it on would undo the streaming.
        super().__init__(headers={"cache-control": "no-cache", "x-accel-buffering": "no"})
        del self.headers["content-length"]
        self._chunks = chunks
        self._record = record
        self._until = until

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        try:
            async with asyncio.timeout(self._until + _READING_TIME - monotonic()):
                await unless_gone(receive, self._send(send))
        except ApiError as gone:
            self._record.code = gone.code
        except TimeoutError:
            self._record.code = "client_too_slow"

    async def _send(self, send: Send) -> None:
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        await send(start)
        async with aclosing(self._chunks):
            try:
                async for chunk in self._chunks:
                    await send(_event(json.dumps(chunk, ensure_ascii=False)))
            except ApiError as error:
                self._record.code = error.code
                await send(_event(json.dumps(error.body(), ensure_ascii=False)))
        await send(_event("[DONE]"))
        await send({"type": "http.response.body", "body": b""})


def _event(data: str) -> dict[str, Any]:
    return {
        "type": "http.response.body",
        "body": b"data: " + data.encode() + b"\n\n",
        "more_body": True,
    }
