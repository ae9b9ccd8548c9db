"""Inputs that have given cells of a pack's facts: how `dspark.parity_facts` is read backwards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dspark.facts import OTHER, Cell
from dspark.parity_facts import (
    ANOTHER,
    FLAG,
    NONE_REGISTERED,
    NOT_TEXT,
    SEVERAL,
    Asked,
    Question,
)
from dspark.places import steps

_SAMPLES: dict[str, dict[str, object]] = {
    "size": {"positive": 7, "zero": 0, "invalid": -1},
    "truth": {"yes": True, "no": False, "invalid": "neither"},
    "count": {"one": 1, "several": 2, "invalid": 0},
}
_PRESENT: dict[str, object] = {"_config": {}, "_ids": [1]}
"""What a key holds by the end of its name; all others hold a number."""
_BOUND = 4
_COUNTS: dict[str, object] = {
    "below": 3,
    "equal": 4,
    "multiple": 8,
    "uneven": 6,
    "unbounded": 3,
    "invalid": 0,
    "default": None,
}


class Writer:
    """A question under construction: facts are written into it one by one."""

    def __init__(self, start: Question, registry: Sequence[str], spare: str) -> None:
        self.config: dict[str, object] = dict(start.config)
        self.flags: dict[str, object] = dict(start.flags)
        self.path = start.path
        self.registry = registry
        self.spare = spare
        """A name of the registry that no rule has."""

    def question(self) -> Question:
        """What has been written."""
        return Question(self.config, self.flags, self.path)

    def write(self, asked: Asked, cell: Cell) -> None:
        """Makes the question one in which `asked` has this cell."""
        if asked.source == "entry":
            self._write_entry(cell)
            return
        if asked.words and asked.source != "key":
            cell = self._write_word(asked, cell)
        where = self.flags if asked.source == "flag" else self.config
        for place in asked.places:
            _put(where, steps(place), None)
        if asked.places:
            place = cell if asked.shape == "which" and cell is not None else asked.places[0]
            _put(where, steps(place), _value(asked, cell))
        for number, place in enumerate(reversed(asked.against)):
            free = number or cell in (None, "unbounded", "invalid")
            bounds = self.flags if place.startswith(FLAG) else self.config
            _put(bounds, steps(place.removeprefix(FLAG)), None if free else _BOUND)

    def _write_word(self, asked: Asked, cell: Cell) -> Cell:
        """Puts a word into the path where no flag can give the cell; returns what is left to it."""
        self.path = ""
        if cell in asked.firm or cell in asked.of:
            return cell
        for word, found in asked.words.items():
            if cell == found:
                self.path = f"owner/{word}x"
                return None
        return cell

    def _write_entry(self, cell: Cell) -> None:
        self.config.pop("architectures", None)
        if cell == NONE_REGISTERED:
            self.config["architectures"] = [OTHER]
        elif cell == SEVERAL:
            self.config["architectures"] = list(self.registry[:2])
        elif cell is not None:
            self.config["architectures"] = [self.spare if cell == OTHER else cell]


def _value(asked: Asked, cell: Cell) -> object:
    if cell is None or (asked.shape == "text" and cell == asked.absent):
        return None
    if asked.against:
        return _COUNTS[cell]
    if asked.shape in _SAMPLES:
        return _SAMPLES[asked.shape][cell]
    if asked.shape == "which":
        return 1
    if asked.shape == "presence":
        return next((v for end, v in _PRESENT.items() if asked.places[0].endswith(end)), 1)
    if cell == ANOTHER and (asked.of or asked.words):
        return OTHER
    if asked.source == "key" and asked.words:
        return next(word for word, found in asked.words.items() if found == cell)
    return 0 if cell == NOT_TEXT else cell


def _put(config: dict[str, object], path: tuple[str, ...], value: object) -> None:
    """Sets or, for None, removes the value at `path`; objects on the way are copied first.

    An entry of a list is written as its only one.
    """
    *way, last = path
    if last.isdigit():
        _put(config, tuple(way), None if value is None else [value])
        return
    for step in way:
        inner = config.get(step)
        if value is None and not isinstance(inner, Mapping):
            return
        made: dict[str, object] = dict(inner) if isinstance(inner, Mapping) else {}
        config[step] = made
        config = made
    config.pop(last, None)
    if value is not None:
        config[last] = value
