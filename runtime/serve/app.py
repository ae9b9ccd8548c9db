"""The service as a FastAPI app: to be run as it is, or mounted in another."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import time
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from dspark import Decision, Table, __version__
from dspark.runtime.async_engine import AsyncEngine
from dspark.runtime.engine import Engine
from dspark.runtime.errors import InvalidRequest
from dspark.runtime.serve.admission import Admission
from dspark.runtime.serve.auth import RequireKey
from dspark.runtime.serve.body_limit import LimitBody
from dspark.runtime.serve.chat import chat_routes
from dspark.runtime.serve.chat_schema import ChatRequest
from dspark.runtime.serve.chat_template import ChatTemplate
from dspark.runtime.serve.completions import completion_routes
from dspark.runtime.serve.completions_schema import CompletionRequest
from dspark.runtime.serve.drain import Drain
from dspark.runtime.serve.errors import ApiError
from dspark.runtime.serve.health import Health, health_routes
from dspark.runtime.serve.logs import Observe
from dspark.runtime.serve.metrics import Metrics, metrics_route
from dspark.runtime.serve.models import model_routes
from dspark.runtime.serve.paths import path_below
from dspark.runtime.serve.record import record_of
from dspark.runtime.serve.route import route_routes
from dspark.runtime.serve.schema import ErrorReply, TextRequest
from dspark.runtime.serve.service import ServedModel, Service
from dspark.runtime.serve.settings import ServeSettings
from dspark.runtime.serve.tokens import Tokens
from dspark.runtime.serve.validation import validation_error

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_BODIES: dict[str, type[TextRequest]] = {
    "/v1/completions": CompletionRequest,
    "/v1/chat/completions": ChatRequest,
}
_CODES = {404: "not_found", 405: "method_not_allowed"}


def create_app(
    engine: Engine | AsyncEngine,
    tokenizer: Tokenizer,
    *,
    model: str,
    chat_template: ChatTemplate | None = None,
    decision: Decision | None = None,
    table: Table | None = None,
    settings: ServeSettings | None = None,
) -> FastAPI:
    """An app that serves `engine` under the id `model`, in the manner of OpenAI's API.

    Of an `Engine`, the app takes care: it runs as long as the app does. An `AsyncEngine` is the
    caller's, who enters it before the first request and leaves it after the last; that is the one
    to give to an app that is mounted in another, since a mounted app is never told to start.

    `tokenizer` is the target's. Without a `chat_template`, chats are refused. `decision` is the
    draft's, for logs and metrics. `table` decides what `/v1/route` is asked, the one that ships if
    not given. `app.state.service` lets the caller drain it.

    Raises:
        InvalidRequest: the engine has no tokenizer, so that it could not stop at a text.
    """
    from dspark.routing import default_table

    runner = engine if isinstance(engine, AsyncEngine) else AsyncEngine(engine)
    if not runner.engine.has_tokenizer:
        raise InvalidRequest("an engine that is served needs its tokenizer: give it `decode`")
    service = _service(
        runner,
        Tokens(tokenizer),
        chat_template,
        _served(model, decision, table or default_table()),
        table or default_table(),
        settings or ServeSettings(),
    )

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        if runner is engine:
            yield
            return
        async with runner:
            yield

    app = _App(
        title="dspark",
        version=__version__,
        summary="OpenAI-compatible text generation with a DSpark or DFlash draft.",
        lifespan=lifespan,
        # The usual page loads its scripts from another server.
        docs_url=None,
        redoc_url=None,
        responses={"4XX": {"model": ErrorReply}, "5XX": {"model": ErrorReply}},
    )
    app.state.service = service
    _routes(app, service)
    _errors(app)
    limits = service.settings
    app.add_middleware(LimitBody, most=limits.max_body_bytes, seconds=limits.body_timeout)
    if limits.api_keys:
        app.add_middleware(RequireKey, keys=limits.api_keys)
    app.add_middleware(Observe, service=service)
    return app


def _served(name: str, decision: Decision | None, table: Table) -> ServedModel:
    return ServedModel(
        name=name,
        created=int(time()),
        table_version=table.version if decision is None else decision.table_version,
        rule_id=None if decision is None else decision.rule_id,
        lane=None if decision is None else decision.lane,
    )


def _service(
    engine: AsyncEngine,
    tokens: Tokens,
    template: ChatTemplate | None,
    model: ServedModel,
    table: Table,
    settings: ServeSettings,
) -> Service:
    admission = Admission(engine.engine.config.max_batch, settings.max_queue)
    health = Health(engine)
    about = {
        "version": __version__,
        "model": model.name,
        "table_version": model.table_version,
        "rule_id": model.rule_id or "",
        "lane": model.lane or "",
    }
    return Service(
        engine=engine,
        tokens=tokens,
        template=template,
        model=model,
        table=table,
        settings=settings,
        admission=admission,
        drain=Drain(),
        health=health,
        metrics=Metrics(engine.engine, admission, health, about),
    )


def _routes(app: FastAPI, service: Service) -> None:
    app.include_router(completion_routes(service))
    app.include_router(chat_routes(service))
    app.include_router(model_routes(service))
    app.include_router(route_routes(service))
    app.include_router(health_routes(service.health))
    app.include_router(metrics_route(service.metrics))


class _App(FastAPI):
    def openapi(self) -> dict[str, Any]:
        """The description of the API."""
        document = super().openapi()
        # FastAPI's own error shape, which no route here answers with.
        for path in document["paths"].values():
            for operation in path.values():
                operation["responses"].pop("422", None)
        return document


def _errors(app: FastAPI) -> None:
    def answer(request: Request, error: ApiError) -> JSONResponse:
        record_of(request.scope).code = error.code
        return error.response()

    async def api_error(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, ApiError)  # INVARIANT: it is registered for these
        return answer(request, error)

    async def http_error(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, HTTPException)  # INVARIANT: it is registered for these
        status = error.status_code
        code = _CODES.get(status, "invalid_request")
        return answer(request, ApiError(status, error.detail, code=code, headers=error.headers))

    async def invalid(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, RequestValidationError)  # INVARIANT: it is registered for these
        body = _BODIES.get(path_below(request.scope), TextRequest)
        return answer(request, validation_error(error, list(body.model_fields), body.UNSUPPORTED))

    app.add_exception_handler(ApiError, api_error)
    app.add_exception_handler(HTTPException, http_error)
    app.add_exception_handler(RequestValidationError, invalid)
