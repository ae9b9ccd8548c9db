"""Message templates: text that belongs to a rule, with placeholders from a closed list.

A template is code. It is parsed when the table is compiled, its placeholders are checked there,
and `dspark check` renders every one, so that no user meets `{model_typ}` in a refusal.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import NamedTuple

ROUTE_PLACEHOLDERS = frozenset(
    {
        "architecture",
        "architectures",
        "model_type",
        "packaging",
        "algorithm",
        "markov_rank",
        "did_you_mean",
    }
)
"""What a routing rule's text may quote. The source's path is not among them: a decision must not
depend on where a checkpoint lies."""

LONGEST_QUOTE = 80
"""Characters of a quoted value before it is cut: a config can hold a megabyte in one string."""

_FIELD = re.compile(r"\{([^{}]*)\}")


class Template(NamedTuple):
    """A message with its placeholders found."""

    text: str
    fields: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> Template:
        return cls(text, tuple(_FIELD.findall(text)))

    def render(self, values: Mapping[str, object], longest: int = LONGEST_QUOTE) -> str:
        """The message with each placeholder replaced; raises KeyError if a value is missing."""
        if not self.fields:
            return self.text
        return _FIELD.sub(lambda match: plain(values[match.group(1)], longest), self.text)

    def skeleton(self) -> str:
        """The fixed words alone: what two messages are compared by."""
        return " ".join(_FIELD.sub(" ", self.text).split())


def plain(value: object, longest: int = LONGEST_QUOTE) -> str:
    """`value` as one line of printable text: control characters escaped, long text cut."""
    text = value if isinstance(value, str) else _as_json(value)
    if len(text) > longest:
        text = text[:longest] + "..."
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _as_json(value: object) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):  # from a Python caller: no config.json can hold it
        return "a value that JSON cannot hold"


def quoted(value: object) -> str:
    """`value` in backticks, or the bare word `absent` for a missing fact."""
    return "absent" if value is None else f"`{plain(value)}`"
