"""The keys of a contract as its author wrote them: types, ranges, places and defaults."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import NamedTuple

from yaml.nodes import Node, ScalarNode, SequenceNode

from dspark.contract import Key, KeyPlace
from dspark.diagnostics import Place
from dspark.document import Document
from dspark.spelling import did_you_mean
from dspark.typed import RANGED, TYPES, has_type

_KEY_FIELDS = ("type", "range", "places", "default")
_PLACE_FIELDS = ("path", "minus", "negate")
_NAME = re.compile(r"[a-z][a-z0-9_]*")
_PATH = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z0-9_]+)*")


class Declared(NamedTuple):
    """A key whose default is read when all keys are known."""

    key: Key
    default: Node | None
    document: Document


def unknown(document: Document, node: Node, what: str, name: str, known: Collection[str]) -> None:
    """Reports a name that is none of `known`."""
    listed = f"use one of {', '.join(known)}" if known else "there is none that could be named"
    hint = did_you_mean(name, known) or listed
    document.report.add("unknown-name", document.place(node), what=what, name=name, hint=hint)


def texts(document: Document, node: Node | None, what: str) -> list[str]:
    """The entries of a list of texts, each once."""
    found: dict[str, Node] = {}
    for entry in document.items(node, what) if node is not None else ():
        text = document.text(entry, f"an entry of {what}")
        if text is None:
            continue
        if text in found:
            first = document.place(found[text]).line
            document.report.add("duplicate-key", document.place(entry), key=text, first_line=first)
        found.setdefault(text, entry)
    return list(found)


def read_keys(document: Document, node: Node | None, within: Sequence[str]) -> dict[str, Declared]:
    """The keys under `node`; a place that is plain text is looked for in each of `within` too."""
    found = {}
    for name, (key_node, value) in document.mapping(node, "`keys`").items():
        place = document.place(key_node)
        if not _NAME.fullmatch(name):
            wanted = "a name of small letters, digits and underscores"
            document.wrong(key_node, f"the key `{name}`", wanted, "another text")
            continue
        fields = document.fields(value, f"key `{name}`", _KEY_FIELDS, ("type", "places"), place)
        kind = _type(document, fields.get("type"))
        key = Key(
            name,
            kind,
            _range(document, name, kind, fields.get("range"), place),
            tuple(_places(document, name, fields.get("places"), kind, within)),
            None,
            place,
        )
        found[name] = Declared(key, fields.get("default"), document)
    return found


def _type(document: Document, node: Node | None) -> str:
    name = document.text(node, "`type`") if node is not None else None
    if name is None or node is None or name in TYPES:
        return name or ""
    unknown(document, node, "type", name, TYPES)
    return ""


def _range(
    document: Document, name: str, kind: str, node: Node | None, place: Place
) -> tuple[float, float] | None:
    ranged = kind in RANGED
    if node is None:
        if ranged:
            problem = "is missing: every number sizes or indexes something"
            document.report.add("bad-range", place, key=name, problem=problem)
        return None
    if not ranged:
        if kind:
            problem = f"bounds nothing: it is of type `{kind}`"
            document.report.add("bad-range", document.place(node), key=name, problem=problem)
        return None
    values = document.data(node)
    numeric = "number" if kind == "number" else "integer"
    problem = ""
    if not (isinstance(values, list) and [has_type(v, numeric) for v in values] == [True, True]):
        problem = f"is not a list of two {'numbers' if numeric == 'number' else 'integers'}"
    elif values[0] > values[1]:
        problem = f"is reversed: {values[0]} is greater than {values[1]}"
    if problem:
        document.report.add("bad-range", document.place(node), key=name, problem=problem)
        return None
    return values[0], values[1]


def _places(
    document: Document, name: str, node: Node | None, kind: str, within: Sequence[str]
) -> list[KeyPlace]:
    what = f"the places of `{name}`"
    if isinstance(node, SequenceNode) and not node.value:
        document.wrong(node, what, "a list of paths into config.json")
    found: dict[tuple[str, ...], KeyPlace] = {}
    for entry in document.items(node, what) if node is not None else ():
        for place in _place(document, entry, what, kind, within):
            if place.path in found:
                at, line = document.place(entry), document.place(node or entry).line
                document.report.add("duplicate-key", at, key=place.dotted, first_line=line)
            found[place.path] = place
    return list(found.values())


def _place(
    document: Document, entry: Node, what: str, kind: str, within: Sequence[str]
) -> list[KeyPlace]:
    if isinstance(entry, ScalarNode):
        return [KeyPlace(path) for path in paths(document, entry, what, within)]
    fields = document.fields(entry, f"an entry of {what}", _PLACE_FIELDS, ("path",))
    found = paths(document, fields["path"], what, ()) if "path" in fields else []
    minus, negate = 0, False
    if "minus" in fields:
        value = document.data(fields["minus"])
        if type(value) is int and kind in ("integer", "integers"):
            minus = value
        else:
            document.wrong(fields["minus"], "`minus`", "an integer, of an integer key", "not")
    if "negate" in fields:
        if document.data(fields["negate"]) is True and kind == "boolean":
            negate = True
        else:
            document.wrong(fields["negate"], "`negate`", "`true`, of a boolean key", "not")
    return [KeyPlace(path, minus, negate) for path in found]


def paths(
    document: Document, node: Node, what: str, within: Sequence[str]
) -> list[tuple[str, ...]]:
    """The raw paths that one entry stands for: as written, then inside each of `within`.

    A path that is inside one of them already stands for itself.
    """
    text = document.text(node, f"an entry of {what}")
    if text is None:
        return []
    if not _PATH.fullmatch(text):
        document.wrong(node, f"an entry of {what}", "a dotted path", "another text")
        return []
    path = tuple(text.split("."))
    if any(text.startswith(f"{prefix}.") for prefix in within):
        return [path]
    return [path, *((*prefix.split("."), *path) for prefix in within)]
