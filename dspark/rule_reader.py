"""One rule of a rules file: its texts, what it decides, and the mistakes in either."""

from __future__ import annotations

import re
from collections.abc import Mapping

from yaml.nodes import MappingNode, Node

from dspark.cases import read_cases
from dspark.condition_reader import Facts, read_when
from dspark.diagnostics import Place
from dspark.document import Document
from dspark.facts import FACTS, Fact
from dspark.messages import ROUTE_PLACEHOLDERS, Template
from dspark.rule import Retired, Rule
from dspark.spelling import did_you_mean

_RULE_KEYS = ("name", "when", "before", "lane", "refuse", "help", "why", "refs", "tests")
_MESSAGE_KEYS = ("name", "refuse", "help", "why", "refs", "placeholders", "tests")
ID = re.compile(r"[A-Z][0-9]{3,5}")
_LANE_LETTER = "L"
_NAME = re.compile(r"[a-z][a-z0-9]*([.-][a-z0-9]+)*")


class RuleReader:
    """Reads the rules of a file of which lanes, facts and default are known.

    `dspark.table` reads those; `dspark.parity_reader` overrides what a pack's rules have otherwise.
    `routing` is False for messages, whose rules have no conditions.
    """

    rule_keys: tuple[str, ...] = _RULE_KEYS
    required_keys: tuple[str, ...] = ("name", "why")
    outcomes: tuple[str, ...] = ("lane", "refuse")
    known: Mapping[str, Fact] = FACTS
    """The facts that may be named."""
    placeholders: frozenset[str] = ROUTE_PLACEHOLDERS

    def __init__(self, document: Document, routing: bool = True) -> None:
        self.document = document
        self.routing = routing
        self.report = document.report
        self.lanes: dict[str, Place] = {}
        self.facts: dict[str, Place] = {}
        self.default = ""
        self.unread_when: set[str] = set()
        self.unread_tests: set[str] = set()

    def _rules(self, node: Node | None, retired: Mapping[str, Retired]) -> dict[str, Rule]:
        rules: dict[str, Rule] = {}
        names: dict[str, Rule] = {}
        if isinstance(node, MappingNode) and not node.value:
            self.report.add("empty-table", self.document.place(node))
        for rule_id, (key, value) in self.document.mapping(node, "`rules`").items():
            place = self.document.place(key)
            if not ID.fullmatch(rule_id):
                self.report.add("bad-rule-id", place, id=rule_id)
            if rule_id in retired:
                tomb = retired[rule_id]
                self.report.add("retired-id", place, id=rule_id, name=tomb.name, since=tomb.since)
            rule = self._rule(rule_id, place, value, rule_id == self.default)
            if rule.name in names:
                self.report.add("duplicate-name", place, name=rule.name, other=names[rule.name].id)
            elif rule.name:
                names[rule.name] = rule
            rules[rule_id] = rule
        for rule in rules.values():
            for other in sorted(other for other in rule.before if other not in rules):
                self.report.add(
                    "unknown-before",
                    rule.place,
                    id=rule.id,
                    other=other,
                    hint=did_you_mean(other, rules) or "give the ID of a rule in this file",
                )
        return rules

    def _rule(self, rule_id: str, place: Place, node: Node, is_default: bool) -> Rule:
        doc = self.document
        what = f"rule `{rule_id}`"
        if not isinstance(node, MappingNode):
            doc.wrong(node, what, "a mapping")
            self.unread_when.add(rule_id)
            self.unread_tests.add(rule_id)
            return Rule.bare(rule_id, place)
        allowed_keys = self.rule_keys if self.routing else _MESSAGE_KEYS
        fields = doc.fields(node, what, allowed_keys, self.required_keys, place)
        texts: dict[str, str] = {
            key: doc.text(fields[key], f"`{key}`") or ""
            for key in dict.fromkeys(("name", *self.outcomes, "help", "why"))
            if key in fields
        }
        name = texts.get("name", "")
        if name and not _NAME.fullmatch(name):
            self.report.add("bad-rule-name", doc.place(fields["name"]), name=name)
        read = len(self.report)
        self._outcome(rule_id, place, texts, fields)
        if not is_default:
            self._letter(rule_id, place, fields)
        bare = self.routing and not is_default and "when" not in fields
        if bare and self.default:  # without a default, this rule may be what it should name
            self.report.add("missing-table-key", place, key="when", what=what)
        when = read_when(doc, fields.get("when"), Facts(self.known, self.facts))
        if len(self.report) > read or bare:
            self.unread_when.add(rule_id)
        allowed = self.placeholders
        if "placeholders" in fields:
            entries = doc.items(fields["placeholders"], "`placeholders`")
            allowed = frozenset(doc.text(entry, "a placeholder") or "" for entry in entries)
        if is_default and "lane" in texts:
            at = doc.place(fields["lane"])
            self.report.add("default-lane", at, id=rule_id, lane=texts["lane"])
        if is_default and "when" in fields:
            self.report.add("default-with-when", doc.place(fields["when"]), id=rule_id)
        if "lane" in fields and "help" in fields:
            at = doc.place(fields["help"])
            self.report.add("idle-key", at, name="help", why="a lane prints no refusal")
        read = len(self.report)
        outcomes = [key for key in self.outcomes if key in fields]
        cases = tuple(read_cases(doc, rule_id, fields.get("tests"), outcomes))
        if len(self.report) > read:
            self.unread_tests.add(rule_id)
        return Rule(
            id=rule_id,
            name=name,
            when=when,
            lane=self._leads_to(texts),
            refuse=self._template(texts, fields, "refuse", allowed),
            help=self._template(texts, fields, "help", allowed),
            why=" ".join(texts.get("why", "").split()),
            refs=tuple(doc.texts(fields.get("refs"), "`refs`")),
            before=frozenset(doc.texts(fields.get("before"), "`before`")),
            cases=cases,
            place=place,
        )

    def _letter(self, rule_id: str, place: Place, fields: Mapping[str, Node]) -> None:
        if ("lane" in fields) != rule_id.startswith(_LANE_LETTER):
            outcome = "leads to a lane" if "lane" in fields else "refuses"
            self.report.add("wrong-id-letter", place, id=rule_id, outcome=outcome)

    def _leads_to(self, texts: Mapping[str, str]) -> str | None:
        return texts.get("lane")

    def _outcome(
        self, rule_id: str, place: Place, texts: dict[str, str], fields: dict[str, Node]
    ) -> None:
        given = [f"`{key}`" for key in self.outcomes if key in fields]
        if len(given) != 1:
            keys = [f"`{key}`" for key in self.outcomes]
            both = f"both {' and '.join(given)}" if given else f"neither {' nor '.join(keys)}"
            self.report.add("no-outcome", place, id=rule_id, both=both)
        lane = texts.get("lane")
        if lane and lane not in self.lanes:
            self._unknown_lane(lane, self.document.place(fields["lane"]))

    def _unknown_lane(self, lane: str, place: Place) -> None:
        hint = did_you_mean(lane, self.lanes) or "declare it under `lanes`"
        self.report.add("unknown-lane", place, lane=lane, hint=hint)

    def _template(
        self,
        texts: dict[str, str],
        fields: dict[str, Node],
        key: str,
        allowed: frozenset[str],
    ) -> Template | None:
        if not texts.get(key):
            return None
        template = Template.parse(" ".join(texts[key].split()))
        for field in template.fields:
            if field not in allowed:
                self.report.add(
                    "unknown-placeholder",
                    self.document.place(fields[key]),
                    placeholder=field,
                    hint=did_you_mean(field, allowed)
                    or f"use one of {', '.join(sorted(allowed)) or 'none'}",
                )
        brace = re.search(r"[{}]\S*", template.skeleton())
        if brace is not None:
            place = self.document.place(fields[key])
            hint = "close its braces; a message has no other use for them"
            self.report.add("unknown-placeholder", place, placeholder=brace[0], hint=hint)
        return template
