"""How far a pair's text is from its target's own: how often, and by how much each time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from dspark.runtime.decode_one import decode_one
from dspark.runtime.engine import Engine
from dspark.runtime.models.qwen3 import Qwen3Target
from dspark.runtime.params import SamplingParams
from dspark.runtime.teacher import judge

_BELOW = (1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0, math.inf)


@dataclass(slots=True)
class Losslessness:
    """What was found so far.

    `same` counts the prompts whose tokens are the same without the draft, `gaps` are the logit gaps
    of the tokens that diverge, and `smallest_margin` is the nearest that any two choices came.
    """

    prompts: int = 0
    same: int = 0
    tokens: int = 0
    gaps: list[float] = field(default_factory=list)
    smallest_margin: float = math.inf

    @property
    def divergences(self) -> int:
        """How many tokens are not what the target alone would have put out."""
        return len(self.gaps)

    @property
    def lossless(self) -> bool:
        """Whether there is no trace of the draft in any text."""
        return not self.gaps and self.same == self.prompts

    @property
    def largest_gap(self) -> float:
        """The largest gap; 0 without a divergence."""
        return max(self.gaps, default=0.0)

    def histogram(self) -> list[tuple[float | None, int]]:
        """The gaps by size: (upper bound, how many are below it and not below the one before).

        The last bound is None, for all the rest.
        """
        counts = []
        before = -math.inf
        for bound in _BELOW:
            inside = sum(before <= gap < bound for gap in self.gaps)
            counts.append((None if math.isinf(bound) else bound, inside))
            before = bound
        return counts


def add_prompt(
    found: Losslessness,
    engine: Engine,
    target: Qwen3Target,
    prompt: Sequence[int],
    params: SamplingParams,
) -> None:
    """Adds one prompt, decoded by `engine` with and without its draft; `params` are greedy.

    `target` is the engine's. Raises what `decode_one` raises.
    """
    drafted = decode_one(engine, prompt, params).token_ids
    plain = decode_one(engine, prompt, params, drafts=0).token_ids
    found.prompts += 1
    found.same += drafted == plain
    for judged in judge(target, prompt, drafted):
        found.tokens += 1
        found.smallest_margin = min(found.smallest_margin, judged.margin)
        if judged.diverges:
            found.gaps.append(judged.gap)
