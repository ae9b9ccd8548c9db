"""Seeds that give wanted numbers, and whether draws follow a law."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dspark.runtime.choices import Purpose, _mixed

_WORDS = 1 << 64


def seed_for(bits: int, place: int, purpose: Purpose) -> int:
    """The seed whose number for `place` and `purpose` is `bits` / 2^53."""
    seed = _unmixed(_unmixed(bits << 11) ^ _mixed(place * len(Purpose) + purpose))
    # INVARIANT: the mixing of words is a bijection, and this its inverse.
    assert bits == _mixed(_mixed(seed) ^ _mixed(place * len(Purpose) + purpose)) >> 11
    return seed


def _unmixed(word: int) -> int:
    word = _unshifted(word, 31)
    word = _unshifted(word * pow(0x94D049BB133111EB, -1, _WORDS) % _WORDS, 27)
    word = _unshifted(word * pow(0xBF58476D1CE4E5B9, -1, _WORDS) % _WORDS, 30)
    return (word - 0x9E3779B97F4A7C15) % _WORDS


def _unshifted(word: int, bits: int) -> int:
    """The x for which x ^ (x >> bits) is `word`."""
    result = word
    for _ in range(64 // bits):
        result = word ^ (result >> bits)
    return result


def chi_square_is_likely(counts: npt.NDArray[np.float64], chances: npt.ArrayLike) -> None:
    """Fails where draws with these chances would give such counts less than once in a million.

    Places that are expected less than five times are taken together.
    """
    law = np.asarray(chances, np.float64)
    assert not counts[law == 0].any()
    expected = law / law.sum() * counts.sum()
    rare = expected < 5
    seen = np.append(counts[~rare], counts[rare].sum())
    wanted = np.append(expected[~rare], expected[rare].sum())
    if wanted[-1] < 5:
        seen, wanted = seen[:-1], wanted[:-1]
    freedom = len(wanted) - 1
    assert freedom >= 5
    statistic = float(((seen - wanted) ** 2 / wanted).sum())
    # Wilson and Hilferty: the cube root is nearly normal.
    spread = 2 / (9 * freedom)
    assert ((statistic / freedom) ** (1 / 3) - (1 - spread)) / spread**0.5 < 4.75
