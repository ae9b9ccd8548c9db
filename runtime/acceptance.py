"""Which drafts the target keeps, and the one token it adds: the lossless part of the round."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from dspark.runtime.backends.base import HostFloats
from dspark.runtime.choices import Choices, Purpose


@dataclass(frozen=True, slots=True)
class Proposal:
    """The drafts of one request for one round, as target ids.

    `chances` has, per draft, the float32 array [V] it was drawn from, over target ids; None when
    the draft was not drawn but is the likeliest, which counts as all mass on it. `survival` has
    the confidence head's probability that draft j holds if all before it do, or is None.
    """

    tokens: Sequence[int]
    chances: Sequence[HostFloats | None]
    survival: Sequence[float] | None

    def first(self, count: int) -> Proposal:
        """The proposal cut to its first `count` drafts."""
        survival = None if self.survival is None else self.survival[:count]
        return Proposal(self.tokens[:count], self.chances[:count], survival)


NOTHING = Proposal((), (), None)


def accept_greedy(drafts: Sequence[int], best: Sequence[int]) -> list[int]:
    """The tokens of a round at temperature 0; `best[i]` is the target's choice after i drafts."""
    for index, draft in enumerate(drafts):
        if draft != best[index]:
            return list(best[: index + 1])
    return list(best[: len(drafts) + 1])


def accept_sampled(
    proposal: Proposal,
    distribution: Callable[[int], HostFloats],
    choices: Choices,
    place: int,
) -> list[int]:
    """The tokens of a round above temperature 0, distributed exactly as the target's own.

    `distribution(i)` is the target's distribution [V] after the first i drafts; it is asked for no
    more than needed. `place` is the position of the first draft.
    """
    for index, draft in enumerate(proposal.tokens):
        p = distribution(index)
        q = proposal.chances[index]
        chance = float(p[draft]) if q is None else float(p[draft]) / float(q[draft])
        if not choices.accept(min(1.0, chance), place + index):
            replacement = choices.pick(_residual(p, q, draft), place + index, Purpose.TARGET)
            return [*proposal.tokens[:index], replacement]
    last = len(proposal.tokens)
    bonus = choices.pick(distribution(last), place + last, Purpose.TARGET)
    return [*proposal.tokens, bonus]


def _residual(p: HostFloats, q: HostFloats | None, draft: int) -> HostFloats:
    if q is None:
        rest = p.copy()
        rest[draft] = 0.0
    else:
        rest = np.maximum(p - q, np.float32(0.0))
    # A rejection with nothing left over is possible only by rounding: p and q are then equal but
    # for their last bits, and p itself is what is wanted.
    return rest if rest.sum() > 0 else p
