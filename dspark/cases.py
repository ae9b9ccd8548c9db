"""The tests that stand in a rule: read, and their inputs checked before anything runs them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath

from yaml.nodes import Node, SequenceNode

from dspark.document import Document
from dspark.rule import Case

SOURCE_KINDS = {
    "config": "any data",
    "text": "text, in quotes if it would pass for a number or `null`",
    "hex": "an even number of hexadecimal digits in quotes",
    "repeat": "a list of a text and how often to repeat it, 64 MiB at most",
    "folder": "a mapping of file names inside the folder to their texts",
    "path": "text, in quotes if it would pass for a number or `null`",
    "hub": "a mapping of `status`, 400 to 599 or null for no answer, and `error`, a code or null",
}
"""Inputs a test can give besides a bare config fragment, each as a mapping with that key alone.

config: a config.json as data; text: its raw text; hex: its raw bytes; repeat: [text, times] joined;
folder: a checkpoint folder as {file name: text}; path: a source argument as typed; hub: the answer
of the hub, {status, error}. The value is what the input must be, in words.
"""

_LONGEST = 64 << 20
_HEX = re.compile(r"([0-9a-fA-F]{2})*")


def source_kind(given: Mapping[str, object]) -> str:
    """The key of `SOURCE_KINDS` that an input is, or the empty string for a config fragment."""
    kind = next(iter(given)) if len(given) == 1 else ""
    return kind if kind in SOURCE_KINDS else ""


def read_cases(
    document: Document, rule_id: str, node: Node | None, outcomes: Sequence[str]
) -> Iterator[Case]:
    """The tests of one rule; `outcomes` are those of `lane` and `refuse` that the rule has."""
    if node is None:
        return
    if not isinstance(node, SequenceNode):
        document.wrong(node, f"the tests of `{rule_id}`", "a list")
        return
    for entry in node.value:
        case = _case(document, rule_id, entry, outcomes)
        if case is not None:
            yield case


def _case(document: Document, rule_id: str, entry: Node, outcomes: Sequence[str]) -> Case | None:
    what = f"a test of `{rule_id}`"
    keys = document.mapping(entry, what)
    fields = document.fields(entry, what, ("hit", "miss", "says", "lane", "is"))
    kinds = [kind for kind in ("hit", "miss") if kind in fields]
    if len(kinds) != 1:
        if keys:
            document.wrong(entry, what, "a mapping with one of `hit` and `miss`")
        return None
    kind = kinds[0]
    given = document.data(fields[kind])
    if not isinstance(given, dict):
        document.wrong(fields[kind], f"the input of a test of `{rule_id}`", "a mapping")
        return None
    source = source_kind(given)
    if source and not _fits(source, given[source]):
        wanted = SOURCE_KINDS[source]
        document.wrong(fields[kind], f"the `{source}` of a test", wanted, "something else")
        return None
    texts = {
        key: document.text(fields[key], f"`{key}`") or ""
        for key in ("says", "lane", "is")
        if key in fields
    }
    # By their values: a misspelt key is read as what was meant, and `keys` has it as it stands.
    places = {id(value): document.place(key) for key, value in keys.values()}
    for key in texts:
        why = _idle(key, kind, outcomes)
        if why:
            document.report.add("idle-key", places[id(fields[key])], name=key, why=why)
    return Case(
        rule_id=rule_id,
        kind=kind,
        given=given,
        says=texts.get("says", ""),
        lane=texts.get("lane", ""),
        expected=texts.get("is", ""),
        place=places[id(fields[kind])],
    )


def _idle(key: str, kind: str, outcomes: Sequence[str]) -> str:
    """Why a test cannot check what `key` asks for; empty if it can."""
    if kind == "miss":
        return "" if key == "is" else "a miss is told by `is` alone"
    if key == "is":
        return "a hit is decided by the rule it stands in"
    if key == "says":
        return "a lane prints no refusal" if list(outcomes) == ["lane"] else ""
    return "a refusal leads to no lane" if list(outcomes) == ["refuse"] else ""


def _fits(kind: str, value: object) -> bool:
    if kind == "config":
        return True
    if kind == "repeat":
        match value:
            case [str(text), int(times)]:
                return times >= 0 and len(text.encode()) * times <= _LONGEST
        return False
    if kind == "folder":
        return isinstance(value, dict) and all(
            isinstance(text, str) and _inside(name) for name, text in value.items()
        )
    if kind == "hub":
        if not isinstance(value, dict) or value.keys() != {"status", "error"}:
            return False
        status, error = value["status"], value["error"]
        if status is None:
            return error is None
        answered = isinstance(status, int) and 400 <= status <= 599
        return answered and isinstance(error, str | None)
    return isinstance(value, str) and (kind != "hex" or _HEX.fullmatch(value) is not None)


def _inside(name: str) -> bool:
    path = PurePosixPath(name)
    return bool(path.parts) and not path.is_absolute() and ".." not in path.parts
