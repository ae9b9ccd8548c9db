"""Who may ask: a key in the `Authorization` header, where the service wants one."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from dspark.runtime.serve.errors import ApiError
from dspark.runtime.serve.paths import PROBES, path_below
from dspark.runtime.serve.record import record_of


class RequireKey:
    """Turns away whoever has none of the keys, before anything of the request is read."""

    def __init__(self, app: ASGIApp, keys: Sequence[str]) -> None:
        self._app = app
        self._digests = [_digest(key.encode()) for key in keys]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_open = scope["type"] != "http" or path_below(scope) in PROBES
        if is_open or self._known(Headers(scope=scope)):
            await self._app(scope, receive, send)
            return
        error = ApiError(
            401,
            "this server wants an API key, in the header `authorization: Bearer KEY`",
            code="invalid_api_key",
            headers={"www-authenticate": "Bearer"},
        )
        record_of(scope).code = error.code
        await error.response()(scope, receive, send)

    def _known(self, headers: Headers) -> bool:
        scheme, _, key = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            return False
        # Equally long digests, and all of them every time: how long it takes tells nothing.
        given = _digest(key.strip().encode("latin-1"))
        return sum(hmac.compare_digest(given, digest) for digest in self._digests) > 0


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()
