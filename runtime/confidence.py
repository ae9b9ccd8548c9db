"""How many of the drafts are worth verifying, by what the draft itself thinks of them.

This is the DSpark paper's Algorithm 1. Whether a draft is verified may depend on the drafts before
it but never on itself, or the output would be biased; so candidates are looked at in order of
survival, and the first that does not pay ends the search, even if a later one would.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ConfidenceSchedule:
    """Chooses the draft lengths of all requests of a pass together.

    `speed` are measured points (tokens in a pass, passes per second) of the target, by rising
    tokens; between them the time of a pass is interpolated, beyond the last it grows in proportion.
    `temperatures` divide the confidence logits, position by position; none means 1 everywhere.
    """

    speed: tuple[tuple[int, float], ...]
    temperatures: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        sizes = [size for size, _ in self.speed]
        if not sizes or sizes != sorted(set(sizes)) or min(rate for _, rate in self.speed) <= 0:
            raise ValueError("`speed` needs points with rising tokens and positive rates")
        if any(temperature <= 0 for temperature in self.temperatures):
            raise ValueError("`temperatures` must be positive")

    def passes_per_second(self, tokens: int) -> float:
        """How many passes of this many tokens the target makes in a second."""
        size, rate = self.speed[0]
        if tokens <= size:
            return rate
        for larger, slower in self.speed[1:]:
            if tokens <= larger:
                share = (tokens - size) / (larger - size)
                return 1 / ((1 - share) / rate + share / slower)
            size, rate = larger, slower
        return rate * size / tokens

    def probability(self, logit: float, position: int) -> float:
        """The chance that the draft at `position` (from 0) holds if all before it do."""
        if position < len(self.temperatures):
            logit /= self.temperatures[position]
        return 1 / (1 + math.exp(-logit)) if logit > -700 else 0.0

    def lengths(self, chances: Sequence[Sequence[float]], other_tokens: int = 0) -> list[int]:
        """How many of each request's drafts to verify.

        `chances[r][j]` is what `probability` gives for draft j of request r; a request without
        drafts has none. `other_tokens` are in the pass whatever is decided here.
        """
        candidates: list[tuple[float, int, int]] = []
        for request, row in enumerate(chances):
            survival = 1.0
            for position, chance in enumerate(row):
                survival *= chance
                # By descending survival; of equals the earlier draft first, so that a later one
                # can never be verified without it.
                candidates.append((-survival, position, request))
        candidates.sort()
        lengths = [0] * len(chances)
        tokens = other_tokens + len(chances)
        expected = float(len(chances))
        best = expected * self.passes_per_second(tokens)
        for negative, position, request in candidates:
            tokens += 1
            expected -= negative
            worth = expected * self.passes_per_second(tokens)
            if not (negative < 0 and worth > best):
                break
            best = worth
            lengths[request] = position + 1
        return lengths
