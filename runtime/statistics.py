"""What is counted about a request and about the engine.

A round is one decoding pass for one request: the target verifies the drafts and adds one token.
The pass that ends the prompt, and yields the first token, is no round. Only tokens that the caller
gets are counted: what a stop cut off was never accepted.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

# The fewest tokens per round below which a draft costs more than it brings on any hardware.
INEFFECTIVE_BELOW = 1.2
INEFFECTIVE_WINDOW = 256

# Why a request that drafts made a round without, or with fewer: `length`, the block would reach
# past the positions the draft was made for or past the request's pages; `vocabulary`, the newest
# token is none the draft knows, or the request allows none of the draft's; `nonfinite`, the draft
# computed no numbers.
Skip = Literal["length", "vocabulary", "nonfinite"]
Health = Literal["draft_ineffective", "draft_nonfinite"]


@dataclass(slots=True)
class Acceptance:
    """Rounds, their tokens, and per draft position how many were verified and how many held."""

    rounds: int = 0
    round_tokens: int = 0
    verified: list[int] = field(default_factory=list)
    accepted: list[int] = field(default_factory=list)
    draft_skipped: Counter[Skip] = field(default_factory=Counter)

    def count(self, drafts: int, tokens: int, *, last_is_draft: bool) -> None:
        """Adds a round that verified `drafts` and put out `tokens`.

        `last_is_draft` says that the output ended within the accepted drafts, at a stop; what lay
        behind it then counts neither as verified nor as accepted.
        """
        self.rounds += 1
        self.round_tokens += tokens
        accepted = tokens if last_is_draft else tokens - 1
        verified = tokens if last_is_draft else drafts
        for counts, upto in ((self.verified, verified), (self.accepted, accepted)):
            counts.extend([0] * (drafts - len(counts)))
            for position in range(upto):
                counts[position] += 1

    def add(self, other: Acceptance) -> None:
        """Adds another's counts."""
        self.rounds += other.rounds
        self.round_tokens += other.round_tokens
        self.draft_skipped.update(other.draft_skipped)
        for mine, theirs in ((self.verified, other.verified), (self.accepted, other.accepted)):
            mine.extend([0] * (len(theirs) - len(mine)))
            for position, count in enumerate(theirs):
                mine[position] += count

    @property
    def tokens_per_round(self) -> float:
        """Tokens put out per round, the target's own included; 0 before the first round."""
        return self.round_tokens / self.rounds if self.rounds else 0.0

    @property
    def acceptance_per_position(self) -> tuple[float, ...]:
        """Per draft position, the share of verified drafts that held, with all before them."""
        return tuple(
            accepted / verified if verified else 0.0
            for accepted, verified in zip(self.accepted, self.verified, strict=True)
        )


@dataclass(slots=True)
class RequestStatistics:
    """One request's counts; `cached_tokens` of its prompt were taken over from earlier ones.

    The times, in seconds, are its share of the passes it took part in; see `docs/statistics.md`
    for how a pass is divided. Those of all requests add up to the engine's.
    """

    prompt_tokens: int
    cached_tokens: int = 0
    completion_tokens: int = 0
    draft_s: float = 0.0
    verify_s: float = 0.0
    host_s: float = 0.0
    acceptance: Acceptance = field(default_factory=Acceptance)


@dataclass(frozen=True, slots=True)
class CacheStatistics:
    """The pages of both models: they share page numbers, and each has its own memory.

    `pages` are held by unfinished requests (`held`), kept because their content may be asked for
    again (`kept`), or free. `target_bytes` and `draft_bytes` are what the two pools take, held or
    not; `draft_bytes` is 0 without a draft.
    """

    pages: int
    held: int
    kept: int
    target_bytes: int
    draft_bytes: int


@dataclass(slots=True)
class EngineStatistics:
    """The engine's counts since it was made; times in seconds.

    Of the rounds on a GPU, `graph_rounds` ran as a graph and `eager_rounds` launch by launch.
    """

    requests: int = 0
    finished: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    passes: int = 0
    graph_rounds: int = 0
    eager_rounds: int = 0
    draft_s: float = 0.0
    verify_s: float = 0.0
    host_s: float = 0.0
    acceptance: Acceptance = field(default_factory=Acceptance)
    _recent: deque[int] = field(default_factory=lambda: deque(maxlen=INEFFECTIVE_WINDOW))

    def count_drafted_round(self, tokens: int) -> None:
        """Notes how many tokens a round with drafts put out."""
        self._recent.append(tokens)

    @property
    def health(self) -> Sequence[Health]:
        """What is wrong though the text is right; empty when nothing is."""
        found: list[Health] = []
        full = len(self._recent) == INEFFECTIVE_WINDOW
        if full and sum(self._recent) < INEFFECTIVE_BELOW * INEFFECTIVE_WINDOW:
            found.append("draft_ineffective")
        if self.acceptance.draft_skipped["nonfinite"]:
            found.append("draft_nonfinite")
        return found
