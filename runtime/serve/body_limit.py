"""How large a body may be, and how long it may take to come."""

from __future__ import annotations

import asyncio

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dspark.runtime.serve.errors import ApiError
from dspark.runtime.serve.record import record_of


class LimitBody:
    """Refuses a body of more than `most` bytes, by its announced length or while it comes.

    One that is not there after `seconds` is not waited for.
    """

    def __init__(self, app: ASGIApp, most: int, seconds: float) -> None:
        self._app = app
        self._most = most
        self._seconds = seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        announced = Headers(scope=scope).get("content-length", "0")
        if announced.isdigit() and int(announced) > self._most:
            error = self._error()
            record_of(scope).code = error.code
            await error.response()(scope, receive, send)
            return
        read, complete = 0, False
        until = asyncio.get_running_loop().time() + self._seconds

        async def counted() -> Message:
            nonlocal read, complete
            try:
                async with asyncio.timeout_at(None if complete else until):
                    message = await receive()
            except TimeoutError:
                raise ApiError(
                    408,
                    f"the body did not come within {self._seconds:g} seconds",
                    code="body_timeout",
                ) from None
            read += len(message.get("body", b""))
            if read > self._most:
                raise self._error()
            complete = not message.get("more_body", False)
            return message

        await self._app(scope, counted, send)

    def _error(self) -> ApiError:
        return ApiError(
            413, f"the body is larger than {self._most} bytes", code="request_too_large"
        )
