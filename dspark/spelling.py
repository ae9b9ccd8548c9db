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
