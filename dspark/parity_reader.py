"""A parity pack's file -> what it says: our rule language, with the engine's facts and outcomes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from dspark.condition_reader import Facts, read_conjunction
from dspark.diagnostics import Place
from dspark.document import Document
from dspark.parity_fact_reader import read_facts
from dspark.parity_facts import Asked, flags_read
from dspark.parity_pack import (
    JOIN,
    PSEUDO_ENTRIES,
    RUNS,
    SWALLOWS,
    UNKNOWN,
    Command,
    Divergence,
    Lane,
    Source,
    known_facts,
)
from dspark.rule import When
from dspark.spelling import did_you_mean
from dspark.table import Source as RuleSource
from dspark.table import TableReader

PACK_KEYS = (
    "pack",
    "engine",
    "version",
    "about",
    "registry",
    "facts",
    "commands",
    "default",
    "lanes",
    "rules",
    "divergences",
    "retired",
)
_REQUIRED = ("pack", "engine", "version", "about", "facts", "commands", "default", "rules")
RULE_KEYS = ("name", "when", "lane", "swallow", "refuse", "unknown", "after", "why", "refs")
ENTRY_PLACEHOLDERS = ("architectures", "first_architecture")
_TAKEN = "LREDCTPBW"
"""Letters that IDs outside packs begin with."""


class PackSource(NamedTuple):
    """What the file says, and its rules as the language knows them."""

    source: Source
    rules: RuleSource


def read_pack(document: Document) -> PackSource:
    """What `document` says; its report then holds everything that is wrong with its form."""
    return _PackReader(document).read_pack()


class _PackReader(TableReader):
    rule_keys = RULE_KEYS
    required_keys = ("name", "refs")
    outcomes = ("lane", "swallow", "refuse", "unknown")

    def __init__(self, document: Document) -> None:
        super().__init__(document)
        self.asked: tuple[Asked, ...] = ()
        self.registry: dict[str, int] = {}
        self.own_lanes: dict[str, Lane] = {}
        self.after: dict[str, str] = {}
        self.letter = ""

    def read_pack(self) -> PackSource:
        doc = self.document
        if doc.root is None and not self.report:
            self.report.add("empty-table", Place(doc.file, 1, 1))
        top = doc.fields(doc.root, "the pack", PACK_KEYS, _REQUIRED)
        texts = {
            key: doc.text(top[key], f"`{key}`") or ""
            for key in ("pack", "engine", "version", "about")
            if key in top
        }
        if "registry" in top:
            names = [doc.text(each, "a name") for each in doc.items(top["registry"], "`registry`")]
            self.registry = {name: rank for rank, name in enumerate(names) if name}
        self.asked = tuple(read_facts(doc, top.get("facts")))
        self.known = known_facts(self.asked)
        self.placeholders = frozenset({*self.known, *ENTRY_PLACEHOLDERS})
        rules = self._source(texts.get("pack", ""), top)
        self._check_names(rules)
        source = Source(
            name=texts.get("pack", ""),
            engine=texts.get("engine", ""),
            version=texts.get("version", ""),
            about=" ".join(texts.get("about", "").split()),
            asked=self.asked,
            registry=self.registry,
            lanes=self.own_lanes,
            after=self.after,
            commands=tuple(self._commands(top.get("commands"))),
            divergences=tuple(self._divergences(top.get("divergences"), rules)),
        )
        return PackSource(source, rules)

    def _facts(self, node: Node | None) -> dict[str, Place]:
        found = self.document.mapping(node, "`facts`") if isinstance(node, MappingNode) else {}
        return {
            name: self.document.place(key) for name, (key, _) in found.items() if name in self.known
        }

    def _lanes(self, node: Node | None) -> dict[str, Place]:
        doc = self.document
        found = doc.mapping(node, "`lanes`")
        for name, (key, value) in found.items():
            ours: tuple[str, ...] = ()
            if isinstance(value, ScalarNode):
                about = doc.text(value, f"the description of lane `{name}`") or ""
            else:
                fields = doc.fields(value, f"lane `{name}`", ("about", "ours"), ("about",))
                about = (doc.text(fields["about"], "`about`") if "about" in fields else "") or ""
                ours = tuple(doc.texts(fields.get("ours"), "`ours`"))
            self.own_lanes[name] = Lane(about, ours, doc.place(key))
        return {name: lane.place for name, lane in self.own_lanes.items()}

    def _letter(self, rule_id: str, place: Place, fields: Mapping[str, Node]) -> None:
        del fields
        self.letter = self.letter or rule_id[:1]
        if rule_id[:1] in _TAKEN or rule_id[:1] != self.letter:
            self.report.add("pack-id-letter", place, id=rule_id, taken=" ".join(_TAKEN))

    def _outcome(
        self, rule_id: str, place: Place, texts: dict[str, str], fields: dict[str, Node]
    ) -> None:
        super()._outcome(rule_id, place, texts, fields)
        doc = self.document
        for key in ("swallow", "after"):
            if key in fields:
                lane = texts.get(key) or doc.text(fields[key], f"`{key}`") or ""
                if lane and lane not in self.lanes:
                    self._unknown_lane(lane, doc.place(fields[key]))
                if key == "after":
                    self.after[rule_id] = lane
        if "after" in fields and "refuse" not in fields:
            why = "only a refusal can come after a lane was chosen"
            self.report.add("idle-key", doc.place(fields["after"]), name="after", why=why)
        if "unknown" in fields and "why" in fields:
            why = "what `unknown` says is the reason"
            self.report.add("idle-key", doc.place(fields["why"]), name="why", why=why)
        elif "unknown" not in fields and "why" not in fields:
            self.report.add("missing-table-key", place, key="why", what=f"rule `{rule_id}`")
        elif "unknown" in fields:
            texts["why"] = texts.get("unknown", "")

    def _leads_to(self, texts: Mapping[str, str]) -> str | None:
        if "unknown" in texts:
            return UNKNOWN
        for key, outcome in (("lane", RUNS), ("swallow", SWALLOWS)):
            if key in texts:
                return f"{outcome}{JOIN}{texts[key]}"
        return None

    def _check_names(self, rules: RuleSource) -> None:
        """Reports classes that a rule names and the registry does not have."""
        entries = {each.name for each in self.asked if each.source == "entry"}
        for rule in rules.rules.values():
            for cell in sorted(_named(rule.when, entries)):
                if cell not in self.registry and cell not in PSEUDO_ENTRIES:
                    hint = did_you_mean(cell, self.registry) or "add it to `registry`"
                    label = "class of the engine's registry"
                    self.report.add("unknown-name", rule.place, what=label, name=cell, hint=hint)

    def _commands(self, node: Node | None) -> Iterator[Command]:
        doc = self.document
        if node is None:
            return
        if not isinstance(node, SequenceNode) or not node.value:
            doc.wrong(node, "`commands`", "a list of commands")
            return
        read = flags_read(self.asked)
        facts = Facts(self.known, self.facts)
        for entry in node.value:
            fields = doc.fields(entry, "a command", ("flags", "when", "type"), ("type",))
            flags = doc.data(fields["flags"]) if "flags" in fields else {}
            if not isinstance(flags, dict):
                doc.wrong(fields["flags"], "the flags of a command", "a mapping")
                continue
            for flag in sorted(set(flags) - read):
                hint = did_you_mean(flag, read) or f"use one of {', '.join(sorted(read)) or 'none'}"
                place = doc.place(fields["flags"])
                self.report.add("unknown-name", place, what="flag", name=flag, hint=hint)
            text = doc.text(fields["type"], "`type`") if "type" in fields else None
            when = read_conjunction(doc, fields["when"], facts) if "when" in fields else {}
            yield Command(flags, " ".join((text or "").split()), when)

    def _divergences(self, node: Node | None, rules: RuleSource) -> Iterator[Divergence]:
        doc = self.document
        if node is None:
            return
        if not isinstance(node, SequenceNode):
            doc.wrong(node, "`divergences`", "a list")
            return
        keys = ("ours", "theirs", "why")
        for entry in node.value:
            fields = doc.fields(entry, "a divergence", keys, keys)
            ours, theirs = (
                tuple(doc.texts(fields.get(key), f"`{key}`")) for key in ("ours", "theirs")
            )
            for rule_id in theirs:
                if rule_id not in rules.rules:
                    self._unknown_id(rule_id, doc.place(entry), rules.rules)
            why = (doc.text(fields["why"], "`why`") if "why" in fields else None) or ""
            yield Divergence(ours, theirs, " ".join(why.split()), doc.place(entry))


def _named(whens: tuple[When, ...], facts: set[str]) -> set[str]:
    return {
        cell
        for when in whens
        for fact, condition in when.items()
        if fact in facts
        for cell in condition.cells
        if cell is not None
    }
