"""What is noted about one HTTP request while it is served."""

from __future__ import annotations

from dataclasses import dataclass, field
from time import monotonic, time
from typing import Any
from uuid import uuid4

from starlette.types import Scope

_KEY = "dspark.record"


@dataclass(slots=True)
class Record:
    """One request: who it is, how far it came and what came of it.

    `code` is the error's, None while there is none. `first_token` is in seconds from the arrival.
    """

    id: str = field(default_factory=lambda: uuid4().hex)
    started: float = field(default_factory=monotonic)
    created: int = field(default_factory=lambda: int(time()))
    status: int | None = None
    code: str | None = None
    stream: bool = False
    choices: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    first_token: float | None = None
    text: dict[str, Any] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        """How long it has been under way."""
        return monotonic() - self.started


def put_record(scope: Scope, record: Record) -> None:
    """Attaches the record to its request."""
    scope[_KEY] = record


def record_of(scope: Scope) -> Record:
    """The record of a request that the service's middleware has seen."""
    record: Record = scope[_KEY]
    return record
