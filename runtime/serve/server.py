"""The app on a socket, until a signal ends it."""

from __future__ import annotations

import logging
import socket
import sys
from types import FrameType

import uvicorn
from fastapi import FastAPI

from dspark.runtime.serve.logs import JsonLines
from dspark.runtime.serve.service import LOGGER, Service

# How much longer than the service's own drain the server waits before it cuts connections off.
_GRACE = 10


def run_server(app: FastAPI, bound: socket.socket) -> None:
    """Serves `app` on a socket that is bound and not listening yet; returns after a signal.

    SIGTERM and SIGINT let what is under way finish; a second one ends at once.
    """
    service: Service = app.state.service
    config = uvicorn.Config(
        app,
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=int(service.settings.drain_timeout) + _GRACE,
    )
    _Server(config, service).run([bound])


def bind(host: str, port: int) -> socket.socket:
    """A socket on the address; port 0 takes a free one.

    Raises:
        OSError: it cannot be had.
        UnicodeError, TypeError: `host` is no name.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
    except (OSError, UnicodeError, TypeError):
        bound.close()
        raise
    return bound


def log_to_stderr(stamp: dict[str, object]) -> None:
    """Writes the log as lines of JSON to standard error, each with the `stamp`."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines(stamp))
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    LOGGER.setLevel(logging.INFO)


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self._service = service

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for bound in sockets or ():
            host, port, *_ = bound.getsockname()
            self._service.log("listening", host=host, port=port)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._service.begin_drain()
        await super().shutdown(sockets)
        self._service.log("stopped")

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002
        # Not the inherited one: it raises the signal again at the end, so that a server that has
        # done what SIGTERM asks for would still die of it.
        self.force_exit = self.should_exit
        self.should_exit = True
