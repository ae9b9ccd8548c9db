"""Every random decision of a request, so that a test can walk through all of them instead.

The numbers are a function of the request's seed, of which token is being decided, and of what for.
They depend neither on the batch nor on the order of work, so the same seed gives the same text in
any company. A draft that was thrown away and is drawn anew at the same place gets the same number:
nothing that was kept depended on it.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Protocol

import numpy as np

from dspark.runtime.backends.base import HostFloats

_MASK = (1 << 64) - 1


class Purpose(IntEnum):
    """What a random number is used for; numbers for different purposes are unrelated."""

    DRAFT = 1
    ACCEPT = 2
    TARGET = 3


class Choices(Protocol):
    """Decides for one request; `place` is the position of the token being decided."""

    def pick(self, weights: HostFloats, place: int, purpose: Purpose) -> int:
        """An index, with chances proportional to the `weights` [V], which need not sum to 1."""
        ...

    def accept(self, probability: float, place: int) -> bool:
        """True with this probability."""
        ...


class SeededChoices:
    """`Choices` by a counter-based generator: a hash of the seed, the place and the purpose."""

    def __init__(self, seed: int) -> None:
        self.seed = seed & _MASK
        self._key = _mixed(self.seed)

    def pick(self, weights: HostFloats, place: int, purpose: Purpose) -> int:
        # float64 sums of the one float32 array, so that what is drawn is what is compared.
        reached = np.cumsum(weights, dtype=np.float64)
        threshold = self._uniform(place, purpose) * reached[-1]
        index = int(np.searchsorted(reached, threshold, side="right"))
        # u * total can round up to the total; the last index with any weight is then meant.
        return index if index < len(weights) else int(np.flatnonzero(weights)[-1])

    def accept(self, probability: float, place: int) -> bool:
        return self._uniform(place, Purpose.ACCEPT) < probability

    def _uniform(self, place: int, purpose: Purpose) -> float:
        """A number in [0, 1), in steps of 2^-53."""
        word = _mixed(self._key ^ _mixed(place * len(Purpose) + purpose))
        return (word >> 11) * 2.0**-53


def _mixed(word: int) -> int:
    """SplitMix64's step and finaliser: a bijection of 64-bit words that looks like noise."""
    word = (word + 0x9E3779B97F4A7C15) & _MASK
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & _MASK
    return word ^ (word >> 31)
