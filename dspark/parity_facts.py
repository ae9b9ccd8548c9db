"""What an engine reads of a draft: the closed list of ways in which a parity pack may declare it.

The router's own facts never look at a path or a flag. Engines do, and each reads keys of its own
in an order of its own; so a pack says, fact by fact, what its engine reads and how. Every way has
cells as our facts have, and `dspark.parity_inputs` knows an input for each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from dspark.facts import ABSENT, Cell, Fact
from dspark.places import Blocked, look_up, steps


class Question(NamedTuple):
    """What an engine is asked: a config.json, what is typed, and what the draft is called."""

    config: Mapping[str, object]
    flags: Mapping[str, object] = {}
    path: str = ""
    """The path or repo id as it is typed, for engines that look for words in it."""


SHAPES: dict[str, tuple[Cell, ...] | None] = {
    "text": None,
    "size": ("positive", "zero", "invalid", ABSENT),
    "presence": ("present", ABSENT),
    "truth": ("yes", "no", "invalid", ABSENT),
    "count": ("one", "several", "invalid", ABSENT),
    "which": None,
}
"""How a value may be read: the word in `as`, and the cells of the fact (None: it depends)."""

AGAINST: tuple[Cell, ...] = (
    "below",
    "equal",
    "multiple",
    "uneven",
    "unbounded",
    "invalid",
    "default",
    ABSENT,
)
"""Cells of a count that is held against another: `multiple` and `uneven` lie above it. There may be
nothing to hold it against (`unbounded`), or nothing but that (`default`)."""

ENTRIES = ("only", "ranked")
"""Which entry of `architectures` counts, if the engine's registry has one: the only one there, or
the one that stands first in the registry."""

NONE_REGISTERED, SEVERAL = "unregistered", "several"
"""Cells of the entry where the registry has none of them, or more than one that it cannot rank."""

NOT_TEXT = "not text"
"""The cell of a value that should be text and is something else."""

ANOTHER = "other"
"""The cell of a text that a fact with a list of its cells does not list."""

FLAG = "--"
"""Before a bound that is a flag and no key."""


class Asked(NamedTuple):
    """One fact of a pack: what is read, from where, and as what."""

    name: str
    source: str
    """`key`, `flag`, `words` or `entry`."""
    places: tuple[str, ...] = ()
    """Dotted keys or flags, the first that is set counts; or the kind of entry."""
    shape: str = "text"
    against: tuple[str, ...] = ()
    """For a count: the keys of the config, or with `--` the flags, that hold what it is compared
    with."""
    words: Mapping[str, str] = {}
    """Word -> cell. The first that is in the value of the key counts; or else in the path, unless a
    flag has a firm value."""
    firm: tuple[str, ...] = ()
    """For a flag beside words: its values that count before any word. Others count after them."""
    same: Mapping[str, str] = {}
    """Text -> cell, for texts that the engine takes for another."""
    of: tuple[str, ...] = ()
    """The texts that are cells of their own, if the others are one cell."""
    absent: Cell = ABSENT
    """The cell where there is no value."""

    def fact(self) -> Fact:
        """The fact as rules see it."""
        return Fact(self.name, f"{self.source} {', '.join(self.places)}", self.cells())

    def cells(self) -> tuple[Cell, ...] | None:
        """Every cell; None for an open fact."""
        if self.source == "entry":
            return None
        if self.against:
            return AGAINST
        if self.shape == "which":
            return (*self.places, ABSENT)
        if self.shape != "text":
            return SHAPES[self.shape]
        if self.source == "words":
            return (*dict.fromkeys(self.words.values()), ABSENT)
        if self.source == "key" and self.words:
            return (*dict.fromkeys(self.words.values()), ANOTHER, ABSENT)
        if not self.of:
            return None
        named = (*self.firm, *self.words.values(), *self.of, ANOTHER, self.absent)
        return tuple(dict.fromkeys(named))

    def read(self, question: Question, registry: Mapping[str, int]) -> Cell:
        """The cell of this fact; `registry` maps the engine's class names to their rank."""
        if self.source == "words":
            return _word(question.path, self.words)
        if self.source == "entry":
            return _entry(question.config.get("architectures"), self.places[0], registry)
        values = question.flags if self.source == "flag" else question.config
        if self.shape == "which":
            return next((p for p in self.places if first_of(values, [p]) is not None), ABSENT)
        value = first_of(values, self.places)
        if self.against:
            return _compared(value, self._bound(question))
        if self.shape != "text":
            return _shaped(value, self.shape)
        if self.source == "key" and self.words:
            text = value if isinstance(value, str) else ""
            return ABSENT if value is None else _word(text, self.words) or ANOTHER
        word = None if value in self.firm else _word(question.path, self.words)
        return self._text(value) if word is None else word

    def _bound(self, question: Question) -> object:
        flags = [place.removeprefix(FLAG) for place in self.against if place.startswith(FLAG)]
        keys = [place for place in self.against if not place.startswith(FLAG)]
        bound = first_of(question.config, keys)
        return first_of(question.flags, flags) if bound is None else bound

    def _text(self, value: object) -> Cell:
        if value is None:
            return self.absent
        if not isinstance(value, str):
            return ANOTHER if self.of else NOT_TEXT
        cell = self.same.get(value, value)
        if self.of and cell not in self.of and cell not in self.firm:
            return ANOTHER
        return cell


def flags_read(asked: Sequence[Asked]) -> set[str]:
    """The flags that a pack's facts look at."""
    of_facts = {place for each in asked if each.source == "flag" for place in each.places}
    bounds = [place for each in asked for place in each.against]
    return of_facts | {place.removeprefix(FLAG) for place in bounds if place.startswith(FLAG)}


def first_of(values: Mapping[str, object], places: Sequence[str]) -> object:
    """The first of these dotted keys that is set; None if none is."""
    for place in places:
        if "." not in place:
            value = values.get(place)
        else:
            value = look_up(values, steps(place))
        if value is not None and value.__class__ is not Blocked:
            return value
    return None


def _word(path: str, words: Mapping[str, str]) -> Cell:
    name = path.lower()
    return next((cell for word, cell in words.items() if word in name), ABSENT)


def _entry(declared: object, kind: str, registry: Mapping[str, int]) -> Cell:
    names = [e for e in declared if isinstance(e, str)] if isinstance(declared, list) else []
    if not names:
        return ABSENT
    known = [entry for entry in dict.fromkeys(names) if entry in registry]
    if not known:
        return NONE_REGISTERED
    if kind == "ranked":
        return min(known, key=registry.__getitem__)
    return known[0] if len(known) == 1 else SEVERAL


def _shaped(value: object, shape: str) -> Cell:
    if value is None:
        return ABSENT
    if shape == "presence":
        return "present"
    if shape == "truth":
        return ("yes" if value else "no") if isinstance(value, bool) else "invalid"
    if type(value) is not int or value < 0:
        return "invalid"
    if shape == "count":
        return "invalid" if not value else "one" if value == 1 else "several"
    return "positive" if value else "zero"


def _compared(value: object, bound: object) -> Cell:
    bounded = type(bound) is int and bound > 0
    if value is None:
        return "default" if bounded else ABSENT
    if type(value) is not int or value < 1:
        return "invalid"
    if type(bound) is not int or bound < 1:
        return "unbounded"
    if value <= bound:
        return "equal" if value == bound else "below"
    return "uneven" if value % bound else "multiple"
