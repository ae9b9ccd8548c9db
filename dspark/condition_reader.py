"""The `when` of a rule -> conditions on facts, with every mistake in them reported."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from dspark.condition import PRESENT, Condition
from dspark.diagnostics import Place
from dspark.document import Document
from dspark.facts import ABSENT, OTHER, Cell, Fact
from dspark.rule import When
from dspark.spelling import did_you_mean


class Facts(NamedTuple):
    """What a condition may be about."""

    known: Mapping[str, Fact]
    declared: Collection[str]
    """Those that the file lists under `facts`."""


def read_when(document: Document, node: Node | None, facts: Facts) -> tuple[When, ...]:
    """The alternatives of a rule, none where there is no `when`."""
    if node is None:
        return ()
    nodes = node.value if isinstance(node, SequenceNode) else [node]
    return tuple(read_conjunction(document, entry, facts) for entry in nodes)


def read_conjunction(document: Document, node: Node, facts: Facts) -> When:
    """Conditions that must all hold."""
    when: dict[str, Condition] = {}
    if not isinstance(node, MappingNode) or not node.value:
        document.wrong(node, "`when`", "a mapping of facts to cells")
        return when
    for name, (key, value) in document.mapping(node, "`when`").items():
        place = document.place(key)
        if name not in facts.known:
            report_unknown_fact(document, place, name, facts.known)
        elif name not in facts.declared:
            document.report.add("missing-table-key", place, key=name, what="`facts`")
        else:
            condition = _condition(document, value, name, facts.known[name].cells)
            if condition is not None:
                when[name] = condition
    return when


def report_unknown_fact(
    document: Document, place: Place, name: str, known: Collection[str]
) -> None:
    """Reports that no fact of `known` has this name."""
    hint = did_you_mean(name, known) or f"use one of {', '.join(known)}"
    document.report.add("unknown-fact", place, fact=name, hint=hint)


def _condition(
    document: Document, node: Node, fact: str, closed: Collection[Cell] | None
) -> Condition | None:
    negated = isinstance(node, MappingNode)
    if negated:
        fields = document.fields(node, f"the condition on `{fact}`", ("not",), ("not",))
        if "not" not in fields:
            return None
        node = fields["not"]
    if isinstance(node, ScalarNode) and node.value == "PRESENT" and not node.style:
        return PRESENT if not negated else Condition(frozenset({ABSENT}))
    cells: set[Cell] = set()
    lines: dict[Cell, int] = {}
    if isinstance(node, SequenceNode) and not node.value:
        document.wrong(node, f"the condition on `{fact}`", "at least one cell")
    for entry in document.items(node, f"the condition on `{fact}`"):
        text = document.text(entry, f"a cell of `{fact}`")
        if text is None:
            continue
        plain = isinstance(entry, ScalarNode) and not entry.style
        cell = ABSENT if text == "ABSENT" and plain else text
        if text == OTHER or (text in ("OTHER", "PRESENT") and plain):
            hint = "write `not: [...]` with the named cells, or `PRESENT` alone"
            place = document.place(entry)
            document.report.add("unknown-cell", place, cell=text, fact=fact, hint=hint)
            continue
        if cell in cells:
            place = document.place(entry)
            document.report.add("duplicate-key", place, key=text, first_line=lines[cell])
        if closed is not None and cell not in closed:
            words = [word if word is not None else "ABSENT" for word in closed]
            hint = did_you_mean(text, words) or f"use one of {', '.join(words)}"
            place = document.place(entry)
            document.report.add("unknown-cell", place, cell=text, fact=fact, hint=hint)
        cells.add(cell)
        lines.setdefault(cell, entry.start_mark.line + 1)
    return Condition(frozenset(cells), negated) if cells else None
