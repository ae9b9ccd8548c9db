"""Whether the service can be left alone, sent requests, or should be looked at."""

from __future__ import annotations

from typing import Any, Literal

from fastapi import APIRouter
from starlette.responses import JSONResponse

from dspark.runtime.async_engine import AsyncEngine

Status = Literal["ready", "starting", "failing", "draining"]


class Health:
    """What is known of the engine's state.

    An engine that failed is not ready until a request that began later has ended well: that is
    the only evidence that it can work again.
    """

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine
        self.draining = False
        self._failures = 0
        self._failing = False
        self.reason: str | None = None

    @property
    def epoch(self) -> int:
        """Changes with every failure; a request notes it when it begins."""
        return self._failures

    def failed(self, reason: str) -> None:
        """Notes that the engine could not go on."""
        self._failures += 1
        self._failing = True
        self.reason = reason

    def succeeded(self, epoch: int) -> None:
        """Notes that a request that began in this epoch has ended well."""
        if epoch == self._failures:
            self._failing = False
            self.reason = None

    @property
    def live(self) -> bool:
        """Whether the engine's loop runs; if it does not, only a restart helps."""
        return self._engine.running

    @property
    def ready(self) -> bool:
        """Whether requests should be sent here."""
        return self.status == "ready"

    @property
    def status(self) -> Status:
        """The state in a word."""
        if self.draining:
            return "draining"
        if not self.live:
            return "starting"
        return "failing" if self._failing else "ready"

    def to_json(self) -> dict[str, Any]:
        """What `/health` answers."""
        problems = list(self._engine.engine.statistics.health)
        return {
            "status": self.status,
            "live": self.live,
            "ready": self.ready,
            "reason": self.reason,
            "draft_ineffective": "draft_ineffective" in problems,
            "problems": problems,
        }


def health_routes(health: Health) -> APIRouter:
    """`/health`, and the same for probes that only ask one thing."""
    router = APIRouter(tags=["health"])

    # Load balancers ask by HEAD, which only wants the status.
    @router.head("/health", include_in_schema=False)
    @router.get("/health", responses={503: {"description": "Not ready."}})
    async def state() -> JSONResponse:
        """The state; 503 while requests should go elsewhere."""
        return JSONResponse(health.to_json(), 200 if health.ready else 503)

    @router.head("/health/live", include_in_schema=False)
    @router.get("/health/live", responses={503: {"description": "Restart it."}})
    async def live() -> JSONResponse:
        """200 while the process can recover by itself."""
        return JSONResponse({"live": health.live}, 200 if health.live else 503)

    @router.head("/health/ready", include_in_schema=False)
    @router.get("/health/ready", responses={503: {"description": "Not ready."}})
    async def ready() -> JSONResponse:
        """200 while requests should be sent here."""
        return JSONResponse({"ready": health.ready}, 200 if health.ready else 503)

    return router
