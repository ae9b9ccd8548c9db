"""`rules/handoff/<engine>-<version>.yaml` -> a hand-off table, with every mistake of its shape.

The language: docs/handoff.md.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from functools import cache

from yaml.nodes import MappingNode, Node, SequenceNode

from dspark.diagnostics import Place, Report
from dspark.document import Document
from dspark.errors import TableError
from dspark.facts import FACTS, Cell
from dspark.files import rules_file
from dspark.handoff_table import (
    DRAFTS,
    Case,
    Demand,
    HandoffTable,
    Recipe,
    Tokens,
    Where,
)
from dspark.spelling import did_you_mean

GUIDE = "docs/handoff.md"
FILES = ("vllm-0.33",)
"""The engines that are handed to, each with a file in `rules/handoff`."""

_TOP = ("engine", "version", "image", "recipes", "uncaptured", "not_block", "rules")
_RECIPE = ("method", "draft", "why", "refs", "tokens", "arguments", "options", "checks")
_TOKENS = ("places", "less", "less_where", "exact")
_CASE = ("when", "serve", "refuse", "because", "refs")
CHECKS = {
    "present": (),
    "not-null": (),
    "one-of": ("values", "unless"),
    "equals": ("to",),
    "below": ("than", "least"),
    "at-most": ("limit", "least"),
    "at-least": ("limit",),
    "increasing": (),
    "target": ("values",),
    "captured": ("unless",),
    "name-without": (),
}
"""Kind of check -> the keys that go with it, beside `finding`."""


@cache
def handoff_table() -> HandoffTable:
    """The table that ships. Raises `TableError`."""
    report = Report()
    found = read_handoff(handoff_document(FILES[0], report))
    if report:
        raise TableError(report.diagnostics())
    return found


def handoff_document(name: str, report: Report) -> Document:
    """A file of `rules/handoff`, parsed; its mistakes go to `report`."""
    file = rules_file("handoff") / f"{name}.yaml"
    return Document(file.read_bytes(), os.fspath(file), report, GUIDE)


def read_handoff(document: Document) -> HandoffTable:
    """The table in `document`; its report then holds every mistake of its shape."""
    return _Reader(document).read()


class _Reader:
    def __init__(self, document: Document) -> None:
        self.document = document
        self.uncaptured: tuple[str, ...] = ()

    def read(self) -> HandoffTable:
        doc = self.document
        start = Place(doc.file, 1, 1)
        if doc.root is None and not doc.report:
            what, wanted = "the hand-off", "a mapping"
            doc.report.add(
                "wrong-shape", start, what=what, wanted=wanted, found="nothing", guide=GUIDE
            )
        top = doc.fields(doc.root, "the hand-off", _TOP, _TOP, start)
        self.uncaptured = self._texts(top, "uncaptured")
        recipes = {
            name: self._recipe(name, node)
            for name, (_, node) in doc.mapping(top.get("recipes"), "`recipes`").items()
        }
        rules = {
            rule_id: tuple(self._cases(rule_id, node))
            for rule_id, (_, node) in doc.mapping(top.get("rules"), "`rules`").items()
        }
        return HandoffTable(
            self._text(top, "engine"),
            self._text(top, "version"),
            self._text(top, "image"),
            recipes,
            rules,
            self.uncaptured,
            frozenset(self._texts(top, "not_block")),
        )

    def _recipe(self, name: str, node: Node) -> Recipe:
        what = f"the recipe `{name}`"
        top = self.document.fields(node, what, _RECIPE, ("method", "why", "refs", "tokens"))
        self._texts(top, "refs")
        self._text(top, "why")
        options = self.document.data(top["options"]) if "options" in top else {}
        return Recipe(
            name,
            self._text(top, "method"),
            self._word(top, "draft", DRAFTS),
            self._tokens(top.get("tokens")),
            self._texts(top, "arguments"),
            options if isinstance(options, dict) else {},
            tuple(self._demands(top.get("checks"))),
        )

    def _tokens(self, node: Node | None) -> Tokens:
        top = self.document.fields(node, "`tokens`", _TOKENS)
        less = self._number(top, "less")
        where = self._where(top.get("less_where"), "`less_where`")
        exact = self._word(top, "exact", ("false", "true")) == "true"
        return Tokens(self._texts(top, "places"), less, where, exact)

    def _demands(self, node: Node | None) -> Iterator[Demand]:
        for entry in self.document.items(node, "`checks`") if node is not None else ():
            pairs = entry.value if isinstance(entry, MappingNode) else ()
            named = [key.value for key, _ in pairs]
            kind = next((kind for kind in CHECKS if kind in named), "")
            if not kind:
                self.document.wrong(entry, "a check", f"one of {', '.join(CHECKS)}")
                continue
            allowed = (kind, *CHECKS[kind], "finding")
            # A target need only have the fact where no values are listed.
            optional = ("unless", "least", "values") if kind == "target" else ("unless", "least")
            required = tuple(key for key in allowed if key not in optional)
            top = self.document.fields(entry, f"the check `{kind}`", allowed, required)
            yield Demand(
                kind,
                self._texts(top, kind),
                self.uncaptured if kind == "captured" else self._values(top.get("values")),
                next((self._text(top, key) for key in ("to", "than", "limit") if key in top), ""),
                self._number(top, "least") if "least" in top else None,
                self._where(top.get("unless"), "`unless`"),
                self._text(top, "finding"),
            )

    def _cases(self, rule_id: str, node: Node) -> Iterator[Case]:
        doc = self.document
        nodes = node.value if isinstance(node, SequenceNode) else [node]
        for entry in nodes:
            place = doc.place(entry)
            top = doc.fields(entry, f"the hand-off of `{rule_id}`", _CASE)
            recipe, finding = self._text(top, "serve"), self._text(top, "refuse")
            if bool(recipe) == bool(finding):
                both = "both `serve` and `refuse`" if recipe else "neither `serve` nor `refuse`"
                doc.report.add("no-outcome", place, id=rule_id, both=both)
            when: dict[str, tuple[Cell, ...]] = {}
            for fact, (key, cells) in doc.mapping(top.get("when"), "`when`").items():
                if fact not in FACTS:
                    hint = did_you_mean(fact, FACTS) or f"use one of {', '.join(FACTS)}"
                    doc.report.add("unknown-fact", doc.place(key), fact=fact, hint=hint)
                words = [doc.text(each, "a cell") for each in doc.items(cells, f"`{fact}`")]
                when[fact] = tuple(None if word == "ABSENT" else word for word in words)
            refs = self._texts(top, "refs")
            yield Case(when, recipe, finding, self._text(top, "because"), refs, place)

    def _where(self, node: Node | None, what: str) -> Where | None:
        if node is None:
            return None
        top = self.document.fields(node, what, ("key", "values"), ("key", "values"))
        return Where(self._text(top, "key"), self._values(top.get("values")))

    def _values(self, node: Node | None) -> tuple[object, ...]:
        found = (
            [self.document.data(each) for each in self.document.items(node, "`values`")]
            if node
            else []
        )
        return tuple(None if value == "ABSENT" else value for value in found)

    def _text(self, top: Mapping[str, Node], key: str) -> str:
        return (self.document.text(top[key], f"`{key}`") if key in top else "") or ""

    def _texts(self, top: Mapping[str, Node], key: str) -> tuple[str, ...]:
        nodes = self.document.items(top[key], f"`{key}`") if key in top else ()
        return tuple(self.document.text(each, f"an entry of `{key}`") or "" for each in nodes)

    def _word(self, top: Mapping[str, Node], key: str, words: tuple[str, ...]) -> str:
        text = self._text(top, key) or words[0]
        if text not in words:
            self.document.wrong(top[key], f"`{key}`", f"one of {', '.join(words)}", f"`{text}`")
        return text

    def _number(self, top: Mapping[str, Node], key: str) -> int:
        value = self.document.data(top[key]) if key in top else 0
        if type(value) is not int:
            self.document.wrong(top[key], f"`{key}`", "a whole number")
            return 0
        return value
