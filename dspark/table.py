"""A rules file -> typed rules, with every mistake in it reported where it stands.

Nothing that an author typed is ignored: an unknown key, fact, cell, lane, placeholder or ID is a
diagnostic with a place and a hint, and all of them are found in one run.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from dspark.cases import read_cases
from dspark.condition import PRESENT, Condition
from dspark.diagnostics import Place
from dspark.document import Document
from dspark.facts import ABSENT, ALONE, FACTS, OTHER, Cell, Fact
from dspark.messages import ROUTE_PLACEHOLDERS, Template
from dspark.rule import Retired, Rule, When
from dspark.spelling import did_you_mean, nearest

_TABLE_KEYS = ("table", "facts", "default", "lanes", "rules", "retired")
_RULE_KEYS = ("name", "when", "before", "lane", "refuse", "help", "why", "refs", "tests")
_MESSAGES_KEYS = ("table", "rules", "retired")
_MESSAGE_KEYS = ("name", "refuse", "help", "why", "refs", "placeholders", "tests")
_ID = re.compile(r"[A-Z][0-9]{3,5}")
_LANE_LETTER = "L"
_NAME = re.compile(r"[a-z][a-z0-9]*([.-][a-z0-9]+)*")


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
    reader = RuleReader(document, routing)
    return reader.read()


class RuleReader:
    """Reads a file of rules; `dspark.parity_reader` overrides what its rules have otherwise."""

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
                self._unknown_fact(fact, place)
                fact = nearest(fact, frozenset(FACTS)) or ""
            elif fact in found:
                first = found[fact].line
                self.report.add("duplicate-key", place, key=fact, first_line=first)
            if fact == ALONE[0] and found:
                self.report.add("fact-order", place, fact=fact, first=next(iter(found)))
            if fact:
                found.setdefault(fact, place)
        return found

    def _unknown_fact(self, fact: str, place: Place) -> None:
        hint = did_you_mean(fact, self.known) or f"use one of {', '.join(self.known)}"
        self.report.add("unknown-fact", place, fact=fact, hint=hint)

    def _retired(self, node: Node | None) -> dict[str, Retired]:
        found: dict[str, Retired] = {}
        if node is None:
            return found
        for rule_id, (key, value) in self.document.mapping(node, "`retired`").items():
            what = f"retired `{rule_id}`"
            place = self.document.place(key)
            if not _ID.fullmatch(rule_id):
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

    def _unknown_lane(self, lane: str, place: Place) -> None:
        hint = did_you_mean(lane, self.lanes) or "declare it under `lanes`"
        self.report.add("unknown-lane", place, lane=lane, hint=hint)

    def _unknown_id(self, rule_id: str, place: Place, rules: Mapping[str, Rule]) -> None:
        hint = did_you_mean(rule_id, rules) or "give the ID of a rule in this file"
        self.report.add("unknown-id", place, id=rule_id, hint=hint)

    def _rules(self, node: Node | None, retired: Mapping[str, Retired]) -> dict[str, Rule]:
        rules: dict[str, Rule] = {}
        names: dict[str, Rule] = {}
        if isinstance(node, MappingNode) and not node.value:
            self.report.add("empty-table", self.document.place(node))
        for rule_id, (key, value) in self.document.mapping(node, "`rules`").items():
            place = self.document.place(key)
            if not _ID.fullmatch(rule_id):
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
        when = self._alternatives(fields.get("when"))
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
            refs=tuple(self._texts(fields.get("refs"), "`refs`")),
            before=frozenset(self._texts(fields.get("before"), "`before`")),
            cases=cases,
            place=place,
        )

    def _letter(self, rule_id: str, place: Place, fields: Mapping[str, Node]) -> None:
        if ("lane" in fields) != rule_id.startswith(_LANE_LETTER):
            outcome = "leads to a lane" if "lane" in fields else "refuses"
            self.report.add("wrong-id-letter", place, id=rule_id, outcome=outcome)

    def _leads_to(self, texts: Mapping[str, str]) -> str | None:
        return texts.get("lane")

    def _texts(self, node: Node | None, what: str) -> Iterator[str]:
        if node is not None:
            for entry in self.document.items(node, what):
                text = self.document.text(entry, f"an entry of {what}")
                if text is not None:
                    yield text

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

    def _alternatives(self, node: Node | None) -> tuple[When, ...]:
        if node is None:
            return ()
        nodes = node.value if isinstance(node, SequenceNode) else [node]
        return tuple(self._conjunction(entry) for entry in nodes)

    def _conjunction(self, node: Node) -> When:
        when: dict[str, Condition] = {}
        if not isinstance(node, MappingNode) or not node.value:
            self.document.wrong(node, "`when`", "a mapping of facts to cells")
            return when
        for fact, (key, value) in self.document.mapping(node, "`when`").items():
            place = self.document.place(key)
            if fact not in self.known:
                self._unknown_fact(fact, place)
            elif fact not in self.facts:
                self.report.add("missing-table-key", place, key=fact, what="`facts`")
            else:
                condition = self._condition(fact, value)
                if condition is not None:
                    when[fact] = condition
        return when

    def _condition(self, fact: str, node: Node) -> Condition | None:
        negated = isinstance(node, MappingNode)
        if negated:
            fields = self.document.fields(node, f"the condition on `{fact}`", ("not",), ("not",))
            if "not" not in fields:
                return None
            node = fields["not"]
        if isinstance(node, ScalarNode) and node.value == "PRESENT" and not node.style:
            return PRESENT if not negated else Condition(frozenset({ABSENT}))
        cells: set[Cell] = set()
        lines: dict[Cell, int] = {}
        if isinstance(node, SequenceNode) and not node.value:
            self.document.wrong(node, f"the condition on `{fact}`", "at least one cell")
        for entry in self.document.items(node, f"the condition on `{fact}`"):
            text = self.document.text(entry, f"a cell of `{fact}`")
            if text is None:
                continue
            plain = isinstance(entry, ScalarNode) and not entry.style
            cell = ABSENT if text == "ABSENT" and plain else text
            if text == OTHER or (text in ("OTHER", "PRESENT") and plain):
                place = self.document.place(entry)
                hint = "write `not: [...]` with the named cells, or `PRESENT` alone"
                self.report.add("unknown-cell", place, cell=text, fact=fact, hint=hint)
                continue
            if cell in cells:
                place = self.document.place(entry)
                self.report.add("duplicate-key", place, key=text, first_line=lines[cell])
            known = self.known[fact].cells
            if known is not None and cell not in known:
                words = [word if word is not None else "ABSENT" for word in known]
                self.report.add(
                    "unknown-cell",
                    self.document.place(entry),
                    cell=text,
                    fact=fact,
                    hint=did_you_mean(text, words) or f"use one of {', '.join(words)}",
                )
            cells.add(cell)
            lines.setdefault(cell, entry.start_mark.line + 1)
        return Condition(frozenset(cells), negated) if cells else None
