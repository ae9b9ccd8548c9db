"""The endpoint before the replicas: it reads a request, says whose it is, and relays the answer."""

from __future__ import annotations

from typing import Any

from ray import serve
from ray.exceptions import RayActorError
from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError
from ray.serve.handle import DeploymentHandle
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from dspark.runtime.handoff.merged_metrics import merged
from dspark.runtime.handoff.relay import Call, Relayed
from dspark.runtime.serve.body_limit import LimitBody
from dspark.runtime.serve.errors import ApiError
from dspark.runtime.serve.record import Record, put_record
from dspark.runtime.serve.settings import ServeSettings

ENGINE = "engine"
"""The deployment of the replicas."""

_ALL = ["GET", "POST", "HEAD", "PUT", "PATCH", "DELETE", "OPTIONS"]
_PATIENCE = 5.0
"""Seconds in which every replica must say how it is."""


def build() -> ASGIApp:
    """The app of the endpoint; Ray Serve calls this where it is to run."""
    place = serve.get_replica_context()
    return front(serve.get_deployment_handle(ENGINE, app_name=place.app_name))


def front(engines: DeploymentHandle) -> ASGIApp:
    """An app that relays everything to `engines`, and asks them all how they are."""

    async def relay(request: Request) -> Response:
        call = Call.of(request.scope, await request.body())
        engine = engines.options(method_name="answer", stream=True, session_id=call.session)
        return Relayed(engine.remote(call), translated)

    async def health(_: Request) -> Response:
        found = await _asked(engines, "state")
        ready = any(state["ready"] for state in found)
        status = "ready" if ready else "starting"
        return JSONResponse({"status": status, "replicas": found}, 200 if ready else 503)

    async def metrics(_: Request) -> Response:
        text, kind = merged(await _asked(engines, "figures"))
        return Response(text, media_type=kind)

    async def error(_: Request, error: Exception) -> Response:
        assert isinstance(error, ApiError)  # INVARIANT: it is registered for these
        return error.response()

    limits = ServeSettings()
    return Starlette(
        routes=[
            Route("/health", health),
            Route("/metrics", metrics),
            Route("/{path:path}", relay, methods=_ALL),
        ],
        middleware=[
            Middleware(_Recorded),
            Middleware(LimitBody, most=limits.max_body_bytes, seconds=limits.body_timeout),
        ],
        exception_handlers={ApiError: error},
    )


class _Recorded:
    """Gives each request the record that the service's middleware writes to."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        put_record(scope, Record())
        await self._app(scope, receive, send)


async def _asked(engines: DeploymentHandle, method: str) -> list[Any]:
    """What each replica answers that does answer."""
    try:
        answers = await engines.broadcast(method).results_async(
            timeout_s=_PATIENCE, return_exceptions=True
        )
    except (DeploymentUnavailableError, TimeoutError):
        return []
    return [answer for answer in answers if not isinstance(answer, BaseException)]


def translated(failure: Exception) -> ApiError | None:
    """What a failure to get an answer from a replica is called; None for any other."""
    if isinstance(failure, RayActorError):
        return ApiError(
            502,
            "the replica that worked on this request has died; send it again",
            code="replica_lost",
        )
    if isinstance(failure, BackPressureError):
        return ApiError(
            429,
            "every replica is full, and as many requests wait as may",
            code="queue_full",
            headers={"retry-after": "1"},
        )
    if isinstance(failure, DeploymentUnavailableError):
        return ApiError(503, "no replica is running", code="engine_not_running")
    return None
