"""What a step writes down as it goes, one JSON object a line, and what is read back from that."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


class Skipped(Exception):
    """A step, or the rest of it, cannot be done here; the text says why."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One thing that was measured; `value` is None in a rehearsal, whose times mean nothing."""

    name: str
    value: float | None
    unit: str


@dataclass(slots=True)
class Found:
    """All that a step wrote down.

    `facts` are words where figures are numbers; `troubles` are failures that it went on after.
    """

    figures: list[Figure] = field(default_factory=list)
    facts: dict[str, str] = field(default_factory=dict)
    troubles: list[str] = field(default_factory=list)
    skipped: str | None = None
    done: bool = False


class Notes:
    """The notes of one step in `folder`, where those of the steps before it lie too."""

    def __init__(self, folder: Path, step: str, *, rehearsal: bool = False) -> None:
        self._folder, self._step, self._rehearsal = folder, step, rehearsal

    def figure(self, name: str, value: float, unit: str) -> None:
        """Notes a measured `value`."""
        self._write(figure=[name, None if self._rehearsal else float(value), unit])

    def fact(self, name: str, text: str) -> None:
        """Notes something that is not a number."""
        self._write(fact=[name, text])

    def trouble(self, text: str) -> None:
        """Notes that something failed, after which the step goes on."""
        self._write(trouble=text)

    def skipped(self, reason: str) -> None:
        """Notes that the step ends here, which is nobody's fault."""
        self._write(skipped=reason)

    def done(self) -> None:
        """Notes that the step came to its end."""
        self._write(done=True)

    def earlier(self, step: str, name: str) -> float | None:
        """A figure of a step before this one; None where it was not measured."""
        values = [each.value for each in read(self._folder, step).figures if each.name == name]
        return values[0] if values else None

    def _write(self, **line: Any) -> None:
        with (self._folder / f"{self._step}.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def read(folder: Path, step: str) -> Found:
    """What `step` wrote down so far, nothing if it never began."""
    found = Found()
    for line in _lines(folder / f"{step}.jsonl"):
        ((kind, value),) = line.items()
        if kind == "figure":
            found.figures.append(Figure(*value))
        elif kind == "fact":
            found.facts[value[0]] = value[1]
        elif kind == "trouble":
            found.troubles.append(value)
        elif kind == "skipped":
            found.skipped = value
        else:
            found.done = True
    return found


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    if not path.is_file():
        return
    for line in path.read_text(encoding="utf-8").splitlines(keepends=True):
        # A process that was ended may have left half a line behind.
        if line.endswith("\n"):
            yield json.loads(line)
