"""An engine in a Ray Serve replica: the whole OpenAI app, called with messages, not by a socket."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict
from ray import serve
from starlette.types import Message

from dspark.runtime.async_engine import AsyncEngine
from dspark.runtime.devices import Device, Dtype
from dspark.runtime.handoff.relay import Call


class Arguments(BaseModel):
    """What a deployment is told: the pair, what each replica may use, and how many there are.

    Paths are those of the machines that the replicas run on.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    target: str
    draft: str | None = None
    name: str | None = None
    """The model's id for callers, by default the name of the target's folder."""
    chat_template: str | None = None
    """A file to use instead of the target's own."""
    device: Device = "cpu"
    dtype: Dtype | None = None
    max_length: int | None = None
    max_batch: int = 8
    max_queue: int = 64
    memory: int | str | None = None
    request_timeout: float = 600.0
    drain_timeout: float = 30.0
    api_key_file: str | None = None
    cpus: float = 1.0
    """CPUs of each replica."""
    gpus: float | None = None
    """GPUs of each replica, by default one where the device is `cuda`."""
    min_replicas: int = 1
    max_replicas: int = 1
    target_ongoing_requests: float | None = None
    """Requests on each replica that the number of replicas aims at, by default its batch."""


class Replica:
    """One engine and its app."""

    # Ray awaits it, on the event loop that requests are answered on.
    async def __init__(self, arguments: Arguments) -> None:  # type: ignore[misc]
        from dspark.runtime.load import open_engine
        from dspark.runtime.serve.app import create_app
        from dspark.runtime.serve.chat_template import read_chat_template

        loaded = open_engine(
            arguments.target,
            arguments.draft,
            device=arguments.device,
            dtype=arguments.dtype,
            max_length=arguments.max_length,
            max_batch=arguments.max_batch,
            memory=arguments.memory,
        )
        self.engine = AsyncEngine(loaded.engine)
        self.app = create_app(
            self.engine,
            loaded.tokenizer,
            model=arguments.name or Path(arguments.target).resolve().name,
            chat_template=read_chat_template(loaded.folder, _path(arguments.chat_template)),
            decision=loaded.decision,
            settings=_settings(arguments),
        )
        await self.engine.__aenter__()

    async def answer(self, call: Call) -> AsyncIterator[Message]:
        """The messages of the app's answer to one request, as they come.

        Leaving the iterator early is what the app hears of a client that hung up.
        """
        messages: asyncio.Queue[Message | None] = asyncio.Queue()
        gone = asyncio.Event()
        bodies = [{"type": "http.request", "body": call.body, "more_body": False}]

        async def receive() -> Message:
            if bodies:
                return bodies.pop()
            await gone.wait()
            return {"type": "http.disconnect"}

        async def run() -> None:
            try:
                await self.app(call.scope, receive, messages.put)
            finally:
                messages.put_nowait(None)

        running = asyncio.create_task(run())
        try:
            while (message := await messages.get()) is not None:
                yield message
            await running
        finally:
            gone.set()
            if not running.done():
                # The app ends the request by itself, and frees its pages before it returns.
                with suppress(asyncio.CancelledError):
                    await asyncio.shield(running)

    async def state(self) -> dict[str, Any]:
        """What `/health` says of this replica."""
        health = self.app.state.service.health.to_json()
        return {"replica": _replica(), "pid": os.getpid(), **health}

    async def figures(self) -> tuple[str, str]:
        """The replica's name, and all its metrics in Prometheus' text format."""
        from prometheus_client import generate_latest

        return _replica(), generate_latest(self.app.state.service.metrics.registry).decode()

    async def check_health(self) -> None:
        """Raises if only a new process can help."""
        if not self.engine.running:
            raise RuntimeError("the engine's loop has ended")


def _path(text: str | None) -> Path | None:
    return None if text is None else Path(text)


def _replica() -> str:
    name: str = serve.get_replica_context().replica_id.unique_id
    return name


def _settings(arguments: Arguments) -> Any:
    from dspark.runtime.serve.keys import read_keys
    from dspark.runtime.serve.settings import ServeSettings

    return ServeSettings(
        max_queue=arguments.max_queue,
        request_timeout=arguments.request_timeout,
        drain_timeout=arguments.drain_timeout,
        api_keys=read_keys(_path(arguments.api_key_file)),
    )
