"""`/v1/models`: the one model, and how it is decoded."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter
from pydantic import BaseModel

from dspark.runtime.serve.service import Service


class Lane(BaseModel):
    """How the model is decoded."""

    lane: str | None
    """The lane that runs its draft; null without one."""
    rule_id: str | None
    """The rule that decided so."""
    table_version: str
    """The content hash of the rules."""


class Model(BaseModel):
    """A model, as OpenAI's clients know it, and more."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str = "dspark"
    max_model_len: int
    """The most tokens that a prompt and its answer may have together."""
    dspark: Lane


class ModelList(BaseModel):
    """All models."""

    object: Literal["list"] = "list"
    data: list[Model]


def model_routes(service: Service) -> APIRouter:
    """The list of models, and each by its id."""
    router = APIRouter(tags=["models"])
    served = service.model
    model = Model(
        id=served.name,
        created=served.created,
        max_model_len=service.engine.engine.config.max_length,
        dspark=Lane(lane=served.lane, rule_id=served.rule_id, table_version=served.table_version),
    )

    @router.get("/v1/models")
    async def models() -> ModelList:
        """What can be asked for as `model`."""
        return ModelList(data=[model])

    @router.get("/v1/models/{model_id:path}")
    async def one(model_id: str) -> Model:
        """The model with this id."""
        service.check_model(model_id)
        return model

    return router
