"""What a service allows its callers, and how long."""

from __future__ import annotations

from dataclasses import dataclass

from dspark.runtime.errors import InvalidRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeSettings:
    """The limits of a service; times in seconds.

    `max_queue` is how many choices may wait beside those that the engine works on; with that many
    waiting, a request gets 429. `max_choices` bounds one request: its prompts times its `n`. A body
    must come within `body_timeout`; `request_timeout` counts from the arrival of a request to the
    end of its answer, and `drain_timeout` from a SIGTERM to the end of what is under way. With
    `api_keys`, everything under `/v1/` asks for one of them. `log_text` puts prompts and answers
    into the log, where they are kept out otherwise.

    Raises:
        InvalidRequest: a limit is not positive, or a key is empty.
    """

    max_queue: int = 64
    max_choices: int = 16
    max_body_bytes: int = 4 << 20
    body_timeout: float = 30.0
    request_timeout: float = 600.0
    drain_timeout: float = 30.0
    api_keys: tuple[str, ...] = ()
    log_text: bool = False

    def __post_init__(self) -> None:
        for name in (
            "max_choices",
            "max_body_bytes",
            "body_timeout",
            "request_timeout",
            "drain_timeout",
        ):
            if not getattr(self, name) > 0:
                raise InvalidRequest(f"`{name}` must be above 0, not `{getattr(self, name)}`")
        if self.max_queue < 0:
            raise InvalidRequest(f"`max_queue` must be 0 or more, not `{self.max_queue}`")
        if "" in self.api_keys:
            raise InvalidRequest("an API key must not be empty")
