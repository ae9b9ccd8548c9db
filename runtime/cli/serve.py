"""`dspark serve`: a target, and its draft, behind OpenAI's API."""

from __future__ import annotations

import argparse
import logging
import math
import socket
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

from dspark import load_refusal
from dspark.cli_plan import count
from dspark.runtime.cli.ending import ended
from dspark.runtime.cli.options import add_model_options, load_models, prepare_models
from dspark.runtime.errors import InvalidRequest
from dspark.verb import OK

if TYPE_CHECKING:
    from dspark.runtime.prepared import Loaded, Prepared
    from dspark.runtime.serve.chat_template import ChatTemplate
    from dspark.runtime.serve.settings import ServeSettings

_DESCRIPTION = (
    "Serves one target over HTTP in the manner of OpenAI's API. The models are folders on this "
    "machine; both are checked as by `dspark plan` before a weight is read. SIGTERM lets what is "
    "under way finish."
)

_LOOPBACK = ("127.0.0.1", "::1", "localhost")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's options."""
    parser.description = _DESCRIPTION
    # What `ended` asks of every verb; the log of this one is JSON anyway.
    parser.set_defaults(json=False)
    add_model_options(parser)
    parser.add_argument(
        "--name", metavar="ID", help="the model's id for callers (default: the folder's name)"
    )
    parser.add_argument(
        "--chat-template", type=Path, metavar="FILE", help="instead of the target's own"
    )
    parser.add_argument("--host", default="127.0.0.1", help="default: this machine only")
    parser.add_argument("--port", type=_port, default=8000, help="default: 8000; 0: a free one")
    parser.add_argument(
        "--api-key-file", type=Path, metavar="FILE", help="one key a line; # starts a comment"
    )
    parser.add_argument(
        "--max-batch", type=count, default=8, metavar="N", help="choices decoded at a time"
    )
    parser.add_argument(
        "--max-queue", type=_natural, default=64, metavar="N", help="choices that may wait"
    )
    parser.add_argument(
        "--max-choices", type=count, default=16, metavar="N", help="choices of one request"
    )
    parser.add_argument(
        "--max-body", type=count, default=4 << 20, metavar="BYTES", help="size of a request"
    )
    parser.add_argument(
        "--request-timeout", type=_seconds, default=600.0, metavar="S", help="of one request"
    )
    parser.add_argument(
        "--drain-timeout", type=_seconds, default=30.0, metavar="S", help="after a SIGTERM"
    )
    parser.add_argument(
        "--log-text", action="store_true", help="put prompts and answers into the log"
    )


def run(arguments: argparse.Namespace) -> int:
    """Serves until a signal; returns the exit code."""
    return ended(_serve, arguments)


def _serve(arguments: argparse.Namespace) -> int:
    try:
        from dspark.runtime.serve.app import create_app
        from dspark.runtime.serve.server import log_to_stderr, run_server
    except ModuleNotFoundError as error:
        raise InvalidRequest(
            f"the package `{error.name}` is not installed: `pip install 'dspark[serve]'`"
        ) from None
    from dspark.runtime.prepared import known

    settings = _settings(arguments)
    prepared = prepare_models(arguments, max_batch=arguments.max_batch)
    template = _template(prepared, arguments.chat_template)
    # Before the weights: what is wrong with the address should not take a minute to be said.
    with _bound(arguments.host, arguments.port) as bound:
        started = perf_counter()
        loaded = load_models(prepared, arguments.threads)
        app = create_app(
            loaded.engine,
            loaded.tokenizer,
            model=arguments.name or loaded.folder.resolve().name,
            chat_template=template,
            decision=loaded.decision,
            table=known(prepared.plan.target_decision).table,
            settings=settings,
        )
        model = app.state.service.model
        log_to_stderr({"table_version": model.table_version, "rule_id": model.rule_id})
        seconds = round(perf_counter() - started, 3)
        app.state.service.log("loaded", seconds=seconds, **_about(loaded))
        if not settings.api_keys and arguments.host not in _LOOPBACK:
            app.state.service.log("open_to_the_network", logging.WARNING, host=arguments.host)
        run_server(app, bound)
    return OK


def _about(loaded: Loaded) -> dict[str, object]:
    config, plan = loaded.engine.config, loaded.plan
    return {
        "device": loaded.device,
        "dtype": loaded.dtype,
        "max_length": config.max_length,
        "max_batch": config.max_batch,
        "pages": config.pages,
        "lane": None if plan is None else plan.lane,
        "warnings": [] if plan is None else [warned.rule_id for warned in plan.warnings],
    }


def _template(prepared: Prepared, file: Path | None) -> ChatTemplate | None:
    from dspark.runtime.prepared import known, target_folder
    from dspark.runtime.serve.chat_template import read_chat_template

    try:
        return read_chat_template(target_folder(prepared.plan), file)
    except InvalidRequest as error:
        if file is not None:
            raise
        raise load_refusal(
            known(prepared.plan.target_decision),
            "target-file-invalid",
            file="chat_template",
            reason=str(error),
        ) from None


def _bound(host: str, port: int) -> socket.socket:
    from dspark.runtime.serve.server import bind

    # An empty name is every address there is, and nobody who leaves a variable unset means that.
    if not host:
        raise InvalidRequest("`--host` is empty; 0.0.0.0 is how to say every address")
    try:
        return bind(host, port)
    except (UnicodeError, TypeError):
        raise InvalidRequest(f"`{host}` is no name of a host") from None
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise InvalidRequest(f"cannot listen on `{host}:{port}`: {reason}") from None


def _settings(arguments: argparse.Namespace) -> ServeSettings:
    from dspark.runtime.serve.keys import read_keys
    from dspark.runtime.serve.settings import ServeSettings

    return ServeSettings(
        max_queue=arguments.max_queue,
        max_choices=arguments.max_choices,
        max_body_bytes=arguments.max_body,
        request_timeout=arguments.request_timeout,
        drain_timeout=arguments.drain_timeout,
        api_keys=read_keys(arguments.api_key_file),
        log_text=arguments.log_text,
    )


def _natural(text: str) -> int:
    return 0 if text == "0" else count(text)


def _port(text: str) -> int:
    port = _natural(text)
    if port > 65535:
        raise argparse.ArgumentTypeError(f"`{text}` is not a port: the last one is 65535")
    return port


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise argparse.ArgumentTypeError(f"`{text}` is not a number of seconds above 0")
    return seconds
