"""How large an engine is and how it works, whatever is asked of it."""

from __future__ import annotations

from dataclasses import dataclass

from dspark.runtime.confidence import ConfidenceSchedule
from dspark.runtime.errors import InvalidRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """How much an engine may hold, and how it works.

    `max_length` is the most tokens that a request may have, prompt and output together; what does
    not fit into it is not generated. The caches have `pages` pages of `page_size` positions.
    `drafts` is how many drafts a round verifies unless a request says otherwise; None means as
    many as the block has. `schedule` lets the confidence head verify fewer where that pays.
    `eos_token_ids` end a text, unless a request ignores them.
    """

    max_length: int
    pages: int
    page_size: int = 32
    max_batch: int = 8
    prefill_tokens: int = 512
    drafts: int | None = None
    schedule: ConfidenceSchedule | None = None
    reuse_prefixes: bool = True
    eos_token_ids: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        for name in ("max_length", "pages", "page_size", "max_batch", "prefill_tokens"):
            if getattr(self, name) < 1:
                raise InvalidRequest(f"`{name}` must be at least 1, not `{getattr(self, name)}`")
