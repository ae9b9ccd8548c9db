"""Errors as OpenAI's clients expect them: one object with message, type, param and code."""

from __future__ import annotations

from collections.abc import Mapping

from fastapi import HTTPException
from starlette.responses import JSONResponse

_TYPES = {401: "authentication_error", 429: "rate_limit_error", 504: "timeout_error"}

CLIENT_GONE = 499
"""What nginx calls it: the client closed the connection, so nobody gets this answer."""


class ApiError(HTTPException):
    """An answer that is an error.

    `code` is for programs, `param` the field of the request that is meant, if one is. The refusal
    of a checkpoint has its rule's ID as `code`.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str,
        param: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(status, message, dict(headers or {}))
        self.message = message
        self.code = code
        self.param = param

    def body(self) -> dict[str, object]:
        """The JSON of the answer."""
        server = "server_error" if self.status_code >= 500 else "invalid_request_error"
        return {
            "error": {
                "message": self.message,
                "type": _TYPES.get(self.status_code, server),
                "param": self.param,
                "code": self.code,
            }
        }

    def response(self) -> JSONResponse:
        """The answer."""
        return JSONResponse(self.body(), self.status_code, self.headers)


def client_gone() -> ApiError:
    """What ends the work for a client that has hung up."""
    return ApiError(CLIENT_GONE, "the client closed the connection", code="client_disconnected")


def engine_failed(reason: str) -> ApiError:
    """What every request under way gets when the engine cannot go on with it."""
    return ApiError(500, f"the engine failed: {reason}", code="engine_failed")


def not_running() -> ApiError:
    """What a request gets while no engine is running behind the app."""
    return ApiError(503, "the engine is not running", code="engine_not_running")


def stopping() -> ApiError:
    """What a request gets that is still under way when the time to finish is over."""
    return ApiError(503, "the server is shutting down", code="server_stopping")


def timed_out(seconds: float) -> ApiError:
    """What a request gets that took too long."""
    return ApiError(
        504, f"the request took longer than {seconds:g} seconds", code="request_timeout"
    )
