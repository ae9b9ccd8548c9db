"""What every route of the service shares."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from dspark import Table
from dspark.runtime.async_engine import AsyncEngine
from dspark.runtime.serve.admission import Admission
from dspark.runtime.serve.chat_template import ChatTemplate
from dspark.runtime.serve.drain import Drain
from dspark.runtime.serve.errors import ApiError
from dspark.runtime.serve.health import Health
from dspark.runtime.serve.metrics import Metrics
from dspark.runtime.serve.settings import ServeSettings
from dspark.runtime.serve.tokens import Tokens

LOGGER = logging.getLogger("dspark.serve")


@dataclass(frozen=True, slots=True)
class ServedModel:
    """The one model that is served; `rule_id` and `lane` are the draft's, None without one."""

    name: str
    created: int
    table_version: str
    rule_id: str | None
    lane: str | None


@dataclass(frozen=True, slots=True)
class Service:
    """An engine with everything that serving it takes."""

    engine: AsyncEngine
    tokens: Tokens
    template: ChatTemplate | None
    model: ServedModel
    table: Table
    settings: ServeSettings
    admission: Admission
    drain: Drain
    health: Health
    metrics: Metrics

    def begin_drain(self) -> None:
        """Lets what is under way finish, within the settings' time, and says so in `/health`."""
        self.health.draining = True
        self.log("draining", under_way=self.admission.under_way)
        self.drain.begin(self.settings.drain_timeout)

    def log(self, event: str, level: int = logging.INFO, **fields: object) -> None:
        """Writes a line to the log `dspark.serve`, with what tells this service from others."""
        stamp = {"table_version": self.model.table_version, "rule_id": self.model.rule_id}
        LOGGER.log(level, event, extra={"fields": stamp | fields})

    def check_model(self, name: str) -> None:
        """Raises ApiError 404 `model_not_found` for a model that is not the one."""
        if name != self.model.name:
            raise ApiError(
                404,
                f"there is no model `{name[:200]}` here; this server has `{self.model.name}`",
                code="model_not_found",
                param="model",
            )

    def check_choices(self, prompts: int, each: int) -> None:
        """Raises ApiError 400 `too_many_choices` for more than a request may have."""
        most = min(self.settings.max_choices, self.admission.capacity)
        if prompts * each > most:
            raise ApiError(
                400,
                f"{prompts} prompts with {each} choices each are more than the {most} choices that"
                " a request may have",
                code="too_many_choices",
                param="n" if each > 1 else "prompt",
            )
