"""`/v1/route`: which lane a checkpoint would take, by its config alone.

What comes from the network never names a path here: it is a config, or a repo of the hub. A body
that is neither is an error that names the field, as for any other request.
"""

from __future__ import annotations

import asyncio
import io
import json
import tempfile
from functools import partial
from importlib.resources import files
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse

from dspark import Decision, Table
from dspark.errors import Unreadable
from dspark.observe import CONFIG_KEYS
from dspark.routing import decide_repo, decide_source
from dspark.runtime.serve.disconnect import unless_gone
from dspark.runtime.serve.errors import ApiError
from dspark.runtime.serve.json_body import JsonRoute, parse_body
from dspark.runtime.serve.lookups import Lookups
from dspark.runtime.serve.service import Service
from dspark.runtime.serve.validation import unknown_parameter
from dspark.strict_json import LARGEST_CONFIG

_CHECKPOINT = "checkpoint"


def route_routes(service: Service) -> APIRouter:
    """The endpoint that decides checkpoints."""
    router = APIRouter(route_class=JsonRoute, tags=["route"])
    lookups: Lookups[Decision] = Lookups()

    @router.post("/v1/route", openapi_extra={"requestBody": _BODY}, responses={200: _ANSWER})
    async def route(request: Request) -> JSONResponse:
        """Decides a config.json, or the one of a repo: `{"checkpoint": "owner/name"}`."""
        data = await request.body()
        repo = _repo(data)
        if repo is None:
            decision = await asyncio.to_thread(
                decide_source, service.table, "-", stdin=io.BytesIO(data)
            )
        else:
            asked = lookups.ask(service, partial(_ask_hub, service.table, repo))
            decision = await unless_gone(request.receive, asked)
        if decision.lane is None:
            service.metrics.refusals.labels(decision.rule_id).inc()
        service.log("route", decided_by=decision.rule_id, lane=decision.lane)
        # Off the loop as well: it looks at every key that the config has.
        return JSONResponse(await asyncio.to_thread(decision.to_json))

    return router


def _repo(data: bytes) -> str | None:
    """The repo id, if this is what the body has; a config is judged as it was written.

    Raises:
        ApiError: 400, for an object that is neither.
    """
    try:
        body = parse_body(data)
    except ApiError:
        return None
    if isinstance(body, dict) and _CHECKPOINT in body and not CONFIG_KEYS.isdisjoint(body):
        message = "`checkpoint` names a repo, and the other keys are a config: send one of the two"
        raise ApiError(400, message, code="invalid_value", param=_CHECKPOINT)
    # One key that the router reads is evidence of a config; an empty one is refused as such.
    if not isinstance(body, dict) or not body or not CONFIG_KEYS.isdisjoint(body):
        return None
    unknown = next((key for key in body if key != _CHECKPOINT), None)
    if unknown is not None:
        raise unknown_parameter(unknown[:80], [_CHECKPOINT, *sorted(CONFIG_KEYS)])
    repo = body[_CHECKPOINT]
    if not isinstance(repo, str):
        raise ApiError(
            400, "`checkpoint` must be a string", code="invalid_value", param=_CHECKPOINT
        )
    return repo


def _ask_hub(table: Table, repo: str) -> Decision:
    # Nothing stays on this disk, whoever asks for whatever.
    with tempfile.TemporaryDirectory() as folder:

        def download(repo_id: str, filename: str, *, revision: str | None) -> str:
            from huggingface_hub import get_hf_file_metadata, hf_hub_download, hf_hub_url

            url = hf_hub_url(repo_id, filename, revision=revision)
            # The server's own token would open repos that the caller may not see.
            size = get_hf_file_metadata(url, token=False).size
            if size is None or size > LARGEST_CONFIG:
                raise Unreadable("config-too-large", limit=LARGEST_CONFIG)
            return hf_hub_download(
                repo_id, filename, revision=revision, token=False, local_dir=folder
            )

        return decide_repo(table, repo, download=download)


def _schema() -> dict[str, Any]:
    text = (files("dspark.schemas") / "decision.schema.json").read_text(encoding="utf-8")
    schema: dict[str, Any] = json.loads(text)
    del schema["$schema"]
    return schema


_BODY = {
    "required": True,
    "content": {
        "application/json": {
            "schema": {
                "type": "object",
                "description": "A draft's config.json as it is, or just a `checkpoint`.",
                "properties": {
                    _CHECKPOINT: {
                        "type": "string",
                        "description": "A repo of the hub: owner/name or owner/name@revision.",
                    }
                },
            }
        }
    },
}
_ANSWER = {"content": {"application/json": {"schema": _schema()}}}
