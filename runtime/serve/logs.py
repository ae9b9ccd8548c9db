"""One line of JSON for each request, without its text unless that was asked for."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dspark.runtime.serve.errors import ApiError
from dspark.runtime.serve.paths import PROBES, path_below, route_of
from dspark.runtime.serve.record import Record, put_record
from dspark.runtime.serve.service import LOGGER, Service


class JsonLines(logging.Formatter):
    """Formats a record as one JSON object with the `stamp`, and with the service's own fields."""

    def __init__(self, stamp: dict[str, object]) -> None:
        super().__init__()
        self._stamp = stamp

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
        }
        line |= self._stamp | getattr(record, "fields", {})
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


class Observe:
    """Notes every request: its line in the log, its figures, its id in `x-request-id`.

    An error that nothing else took becomes a 500 here, with its trace in the log.
    """

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app = app
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        record = Record()
        put_record(scope, record)

        async def noting(message: Message) -> None:
            if message["type"] == "http.response.start":
                record.status = message["status"]
                MutableHeaders(scope=message)["x-request-id"] = record.id
            await send(message)

        try:
            await self._app(scope, receive, noting)
        except Exception:
            LOGGER.exception("internal_error", extra={"fields": {"request_id": record.id}})
            record.code = "internal_error"
            if record.status is not None:
                raise
            error = ApiError(500, "the server failed; its log says why", code=record.code)
            await error.response()(scope, receive, noting)
        finally:
            self._finish(scope, record)

    def _finish(self, scope: Scope, record: Record) -> None:
        route = route_of(scope)
        metrics = self._service.metrics
        metrics.requests.labels(route, str(record.status)).inc()
        if record.code is not None:
            metrics.errors.labels(record.code).inc()
        if record.choices:
            metrics.seconds.labels(route).observe(record.seconds)
        path = path_below(scope)
        if path in PROBES and record.code is None:
            return
        self._service.log(
            "request",
            request_id=record.id,
            method=scope["method"],
            path=path[:200],
            status=record.status,
            code=record.code,
            seconds=round(record.seconds, 6),
            stream=record.stream,
            choices=record.choices,
            prompt_tokens=record.prompt_tokens,
            completion_tokens=record.completion_tokens,
            first_token_seconds=record.first_token and round(record.first_token, 6),
            **record.text,
        )
