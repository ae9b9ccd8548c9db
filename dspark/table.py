"""A rules file -> typed rules, with every mistake in it reported where it stands.

Nothing that an author typed is ignored: an unknown key, fact, cell, lane, placeholder or ID is a
diagnostic with a place and a hint, and all of them are found in one run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from dspark.condition_reader import report_unknown_fact
from dspark.diagnostics import Place
from dspark.document import Document
from dspark.facts import ALONE, FACTS
from dspark.rule import Retired, Rule
from dspark.rule_reader import ID, RuleReader
from dspark.spelling import did_you_mean, nearest

_TABLE_KEYS = ("table", "facts", "default", "lanes", "rules", "retired")
_MESSAGES_KEYS = ("table", "rules", "retired")


class Source(NamedTuple):
    """What a rules file says, before any of it is proved."""

    name: str
    facts: Mapping[str, Place]
    default: str
    lanes: Mapping[str, Place]
    rules: Mapping[str, Rule]
    retired: Mapping[str, Retired]
    place: Place
    unread_when: frozenset[str]
    """IDs of rules with a mistake in what they match or decide: to prove anything about them
    would only report its consequences."""
    unread_tests: frozenset[str]
    """IDs of rules with a mistake in their tests."""


def read_table(document: Document, *, routing: bool = True) -> Source:
    """The rules of `document`; its report then holds everything that is wrong with their form.

    `routing` is False for a table of messages, whose rules have no conditions.
    """
    return TableReader(document, routing).read()


class TableReader(RuleReader):
    """Reads a file of rules and all that stands around them."""

    def read(self) -> Source:
        doc = self.document
        start = Place(doc.file, 1, 1)
        if doc.root is None and not self.report:
            self.report.add("empty-table", start)
        required = ("table", "facts", "rules") if self.routing else ("table", "rules")
        allowed = _TABLE_KEYS if self.routing else _MESSAGES_KEYS
        top = doc.fields(doc.root, "the table", allowed, required)
        name = (doc.text(top["table"], "`table`") if "table" in top else None) or ""
        return self._source(name, top)

    def _source(self, name: str, top: Mapping[str, Node]) -> Source:
        doc = self.document
        self.lanes = self._lanes(top.get("lanes"))
        self.facts = self._facts(top.get("facts"))
        default = (doc.text(top["default"], "`default`") if "default" in top else None) or ""
        retired = self._retired(top.get("retired"))
        ids = self._ids(top.get("rules"))
        if default and default not in ids:
            hint = did_you_mean(default, ids) or "give the ID of a rule in this file"
            self.report.add("unknown-default", doc.place(top["default"]), id=default, hint=hint)
        self.default = default if default in ids else nearest(default, ids) or ""
        rules = self._rules(top.get("rules"), retired)
        if self.routing:  # messages are tested against the table they are shared by
            self._references(rules, retired)
        root = doc.place(doc.root) if doc.root is not None else Place(doc.file, 1, 1)
        return Source(
            name,
            self.facts,
            self.default or default,
            self.lanes,
            rules,
            retired,
            root,
            frozenset(self.unread_when),
            frozenset(self.unread_tests),
        )

    @staticmethod
    def _ids(node: Node | None) -> frozenset[str]:
        keys = [key for key, _ in node.value] if isinstance(node, MappingNode) else []
        return frozenset(key.value for key in keys if isinstance(key, ScalarNode))

    def _lanes(self, node: Node | None) -> dict[str, Place]:
        if node is None:
            return {}
        found = self.document.mapping(node, "`lanes`")
        for key, (_, value) in found.items():
            self.document.text(value, f"the description of lane `{key}`")
        return {key: self.document.place(key_node) for key, (key_node, _) in found.items()}

    def _facts(self, node: Node | None) -> dict[str, Place]:
        found: dict[str, Place] = {}
        if node is None:
            # Reported as a missing key; every use of a fact would report it again.
            return dict.fromkeys(FACTS, Place(self.document.file, 1, 1)) if self.routing else found
        entries = list(self.document.items(node, "`facts`"))
        if isinstance(node, SequenceNode) and not entries:
            self.document.wrong(node, "`facts`", "a list of facts")
        for entry in entries:
            fact = self.document.text(entry, "a fact")
            place = self.document.place(entry)
            if fact is None:
                continue
            if fact not in FACTS:
                report_unknown_fact(self.document, place, fact, self.known)
                fact = nearest(fact, frozenset(FACTS)) or ""
            elif fact in found:
                first = found[fact].line
                self.report.add("duplicate-key", place, key=fact, first_line=first)
            if fact == ALONE[0] and found:
                self.report.add("fact-order", place, fact=fact, first=next(iter(found)))
            if fact:
                found.setdefault(fact, place)
        return found

    def _retired(self, node: Node | None) -> dict[str, Retired]:
        found: dict[str, Retired] = {}
        if node is None:
            return found
        for rule_id, (key, value) in self.document.mapping(node, "`retired`").items():
            what = f"retired `{rule_id}`"
            place = self.document.place(key)
            if not ID.fullmatch(rule_id):
                self.report.add("bad-rule-id", place, id=rule_id)
            keys = self.document.fields(value, what, ("name", "in", "use"), ("name", "in"))
            texts = {key: self.document.text(node, f"`{key}`") or "" for key, node in keys.items()}
            found[rule_id] = Retired(
                rule_id, texts.get("name", ""), texts.get("in", ""), texts.get("use", ""), place
            )
        return found

    def _references(self, rules: Mapping[str, Rule], retired: Mapping[str, Retired]) -> None:
        """Reports IDs, names and lanes that tests and tombstones mention and nothing has."""
        names = {rule.name: rule.id for rule in rules.values()}
        for tomb in retired.values():
            if tomb.use and tomb.use not in rules and tomb.use not in retired:
                self._unknown_id(tomb.use, tomb.place, rules)
            if tomb.name in names:
                other = names[tomb.name]
                self.report.add("duplicate-name", tomb.place, name=tomb.name, other=other)
        for case in (case for rule in rules.values() for case in rule.cases):
            # An `E` rule may be one of messages.yaml, which every table shares.
            if case.expected and case.expected not in rules and not case.expected.startswith("E"):
                self._unknown_id(case.expected, case.place, rules)
            if case.lane and case.lane not in self.lanes:
                self._unknown_lane(case.lane, case.place)

    def _unknown_id(self, rule_id: str, place: Place, rules: Mapping[str, Rule]) -> None:
        hint = did_you_mean(rule_id, rules) or "give the ID of a rule in this file"
        self.report.add("unknown-id", place, id=rule_id, hint=hint)
