"""Near misses: the known word an author or a checkpoint probably meant."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The question `did you mean x?` for the nearest known word, or the empty string."""
    near = nearest(word, frozenset(known))
    return f"did you mean `{near}`?" if near else ""


_LONG = 10
_LONGEST = 100
"""Characters compared: the work grows with their square, and no name is near this long."""


@lru_cache(maxsize=1024)
def nearest(word: str, known: frozenset[str]) -> str | None:
    """The known word closest to `word`, ignoring case and outer spaces.

    None if none is near, and if `word` is known itself.
    """
    import difflib  # only a mistake needs it, and it costs start-up time

    if word in known:
        return None
    folded = {name.casefold(): name for name in sorted(known, reverse=True)}
    wanted = word.strip().casefold()[:_LONGEST]
    # Long names share long endings (`...DSparkModel`), which alone does not make them near.
    cutoff = 0.75 if len(wanted) < _LONG else 0.88
    close = difflib.get_close_matches(wanted, folded, n=1, cutoff=cutoff)
    return folded[close[0]] if close else None


_SHORTEST = 8
"""Of shorter names, such as `use_swa`, one letter more or less often is another name."""


def slip(word: str, known: frozenset[str]) -> str | None:
    """The known name that `word` misses by a slip of the keyboard, ignoring case.

    The two are the same once one letter, or none, is left out of each: there is one too many, too
    few, wrong or out of place. Names that only share words are apart, unlike for `nearest`. None if
    none is that close, and if `word` is known itself.
    """
    if word in known or not _SHORTEST <= len(word) + 1 <= _LONGEST:
        return None
    return _slip(word, known)


@lru_cache(maxsize=1024)
def _slip(word: str, known: frozenset[str]) -> str | None:
    names = _by_rest(known)
    return next((names[rest] for rest in _rests(word) if rest in names), None)


@lru_cache(maxsize=64)
def _by_rest(known: frozenset[str]) -> dict[str, str]:
    """What a known name is without one of its letters, or with all of them -> the name."""
    long = sorted((name for name in known if len(name) >= _SHORTEST), reverse=True)
    return {rest: name for name in long for rest in _rests(name)}


def _rests(name: str) -> list[str]:
    folded = name.casefold()
    return [folded, *(folded[:place] + folded[place + 1 :] for place in range(len(folded)))]
