"""What is wrong with a rules file, where, and what to do: one `Diagnostic` per problem.

The texts are rules too (`rules/diagnostics.yaml`), read only when there is something to report.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from dspark.files import rules_file
from dspark.messages import Template

_WHOLE = 10_000
"""An author's own words are quoted whole: the point is which of them is wrong."""


class Place(NamedTuple):
    """A span in a rules file; line and column count from 1."""

    file: str
    line: int
    column: int
    length: int = 1


class Note(NamedTuple):
    """A second place that belongs to the same problem."""

    place: Place
    text: str


class Diagnostic(NamedTuple):
    """One problem in a rules file."""

    id: str
    name: str
    message: str
    place: Place
    help: str
    notes: tuple[Note, ...] = ()
    witness: str = ""
    """A config.json, as paste-able JSON, that shows the problem; empty where none can exist."""

    def headline(self) -> str:
        file, line, column, _ = self.place
        return f"{file}:{line}:{column}: error[{self.id} {self.name}]: {self.message}"

    def to_json(self) -> dict[str, object]:
        return {
            "id": self.id,
            "name": self.name,
            "message": self.message,
            "place": self.place._asdict(),
            "help": self.help,
            "notes": [{"place": n.place._asdict(), "text": n.text} for n in self.notes],
            "witness": self.witness or None,
        }


class Report:
    """Collects every problem of one compile, so that an author sees them all in one run."""

    def __init__(self) -> None:
        self._found: list[Diagnostic] = []

    def add(
        self,
        name: str,
        place: Place,
        /,
        *,
        notes: tuple[Note, ...] = (),
        witness: str = "",
        **values: object,
    ) -> None:
        """Records the diagnostic called `name` in `rules/diagnostics.yaml`."""
        rule_id, message, help_text = catalogue()[name]
        self._found.append(
            Diagnostic(
                rule_id,
                name,
                message.render(values, _WHOLE),
                place,
                help_text.render(values, _WHOLE),
                notes,
                witness,
            )
        )

    def __len__(self) -> int:
        return len(self._found)

    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """In file order, each once."""
        unique = dict.fromkeys(self._found)
        return tuple(sorted(unique, key=lambda d: (d.place.line, d.place.column, d.id)))


@cache
def catalogue() -> dict[str, tuple[str, Template, Template]]:
    """Diagnostic name -> (ID, message, help), from `rules/diagnostics.yaml`."""
    import yaml

    text = rules_file("diagnostics.yaml").read_text(encoding="utf-8")
    loaded = yaml.safe_load(text)["rules"]
    return {
        rule["name"]: (rule_id, Template.parse(rule["message"]), Template.parse(rule["help"]))
        for rule_id, rule in loaded.items()
    }
