"""A parity pack: one engine's own routing as a table, proved like ours and asked the same way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

from dspark.condition import Condition, sort_cells
from dspark.diagnostics import Place
from dspark.facts import OTHER, Cell, Fact
from dspark.graph import Built, decide
from dspark.parity_facts import NONE_REGISTERED, SEVERAL, Asked, Question
from dspark.parity_inputs import Writer
from dspark.rule import Rule

RUNS, SWALLOWS, REFUSES, UNKNOWN = OUTCOMES = ("runs", "swallows", "refuses", "unknown")
"""What an engine does with a draft. It *swallows* one that it accepts into a lane of another
model: nothing is refused, and what comes out is an obscure error or a draft nobody accepts."""

JOIN = ": "
"""Between outcome and lane in `Rule.lane`, by which the graph and the mutants tell rules apart."""


class Lane(NamedTuple):
    """A class of the engine that drafts can end up in."""

    about: str
    ours: tuple[str, ...]
    """Lanes of our table that do the same."""
    place: Place


class Command(NamedTuple):
    """One way to start the engine with a draft."""

    flags: Mapping[str, object]
    text: str
    """What to type, with `{source}` for the draft."""
    when: Mapping[str, Condition] = {}
    """What must hold of the config for this way to be worth naming."""


class Divergence(NamedTuple):
    """Where our table is meant to answer otherwise, and why."""

    ours: tuple[str, ...]
    theirs: tuple[str, ...]
    why: str
    place: Place


class Answer(NamedTuple):
    """What the engine does with one draft, and which rule of the pack says so."""

    rule: Rule
    outcome: str
    lane: str
    """The class it ends up in, also if it is refused only there; empty if it gets nowhere."""
    text: str
    """The engine's own words of a refusal; for what is swallowed or unknown, the rule's reason."""

    def __str__(self) -> str:
        place = f" in {self.lane}" if self.lane and self.outcome != REFUSES else ""
        words = f": {self.text}" if self.text else ""
        return f"{self.outcome}{place}  [{self.rule.id} {self.rule.name}]{words}"


class Recorded(NamedTuple):
    """One observed answer of the engine: a test of the pack."""

    rule_id: str
    question: Question
    outcome: str
    says: str
    """The lane it ends up in, or words of the engine's refusal."""
    how: str
    """`run`: the engine's code was run; `read`: its code, or a thread, was read."""
    seen: str
    """Where: a source line or a thread."""
    place: Place


class Source(NamedTuple):
    """What a pack's file says, before any of it is proved."""

    name: str
    engine: str
    version: str
    about: str
    asked: tuple[Asked, ...]
    registry: Mapping[str, int]
    lanes: Mapping[str, Lane]
    after: Mapping[str, str]
    commands: tuple[Command, ...]
    divergences: tuple[Divergence, ...]


class Pack:
    """A pack that compiled. Build one with `dspark.parity_compile.compile_pack`."""

    def __init__(
        self,
        file: str,
        source: Source,
        rules: Mapping[str, Rule],
        default: Rule,
        cases: Sequence[Recorded],
    ) -> None:
        self.file = file
        self.name = source.name
        self.engine = source.engine
        self.version = source.version
        self.about = source.about
        self.asked = source.asked
        self.facts = tuple(each.name for each in source.asked)
        self.registry = source.registry
        self.lanes = source.lanes
        self.after = source.after
        self.commands = source.commands
        self.divergences = source.divergences
        self.rules = rules
        self.default = default
        self.cases = tuple(cases)
        self.built: Built

    def __repr__(self) -> str:
        return f"<Pack {self.name}: {len(self.rules)} rules, {len(self.cases)} cases>"

    def cells(self, question: Question) -> tuple[Cell, ...]:
        """What the engine reads of `question`, in the pack's fact order."""
        return tuple(each.read(question, self.registry) for each in self.asked)

    def answer(self, question: Question) -> Answer:
        """What the engine does with `question`."""
        cells = self.cells(question)
        return self.answer_of(decide(self.built.root, cells), question, cells)

    def answer_of(self, rule: Rule, question: Question, cells: Sequence[Cell]) -> Answer:
        """The answer that `rule` gives, with the values of `question` in its words."""
        if rule.refuse is not None:
            values: dict[str, object] = {
                fact: "none" if cell is None else cell
                for fact, cell in zip(self.facts, cells, strict=True)
            }
            declared = question.config.get("architectures")
            entries = [str(each) for each in declared] if isinstance(declared, list) else []
            values["architectures"] = ", ".join(map(repr, entries))
            values["first_architecture"] = entries[0] if entries else ""
            text = rule.refuse.render(values)
            return Answer(rule, REFUSES, self.after.get(rule.id, ""), text)
        outcome, _, lane = (rule.lane or "").partition(JOIN)
        return Answer(rule, outcome, lane, "" if outcome == RUNS else rule.why)

    @cached_property
    def known(self) -> dict[str, Fact]:
        """Name -> fact, with the cells it can take."""
        return known_facts(self.asked)

    @cached_property
    def choices(self) -> dict[str, tuple[Cell, ...]]:
        """Name of a fact -> its cells; of an open fact those that rules name, and ABSENT."""
        found: dict[str, tuple[Cell, ...]] = {}
        for name, fact in self.known.items():
            whens = [w[name] for rule in self.rules.values() for w in rule.when if name in w]
            named = {cell for condition in whens for cell in condition.cells} - {None}
            found[name] = fact.cells if fact.cells is not None else (None, *sort_cells(named))
        return found

    def realise(self, cells: Mapping[str, Cell], start: Question | None = None) -> Question:
        """`start`, or nothing, changed so that the facts in `cells` have these cells."""
        writer = Writer(start or Question({}), tuple(self.registry), self._spare)
        for asked in self.asked:
            if asked.name in cells:
                writer.write(asked, cells[asked.name])
        return writer.question()

    def show(self, facts: Sequence[str], cells: Sequence[Cell]) -> str:
        """A question with these cells as one line of JSON."""
        return show_question(self.realise(dict(zip(facts, cells, strict=False))))

    @cached_property
    def _spare(self) -> str:
        named = {
            cell
            for rule in self.rules.values()
            for when in rule.when
            for condition in when.values()
            for cell in condition.cells
        }
        return next((name for name in self.registry if name not in named), OTHER)


def known_facts(asked: Sequence[Asked]) -> dict[str, Fact]:
    """Name -> fact."""
    return {each.name: each.fact() for each in asked}


def show_question(question: Question) -> str:
    """A question as one line of JSON, without what is empty."""
    import json

    shown: dict[str, object] = {"config": question.config}
    if question.flags:
        shown["flags"] = question.flags
    if question.path:
        shown["path"] = question.path
    return json.dumps(shown)


PSEUDO_ENTRIES = (NONE_REGISTERED, SEVERAL)
"""Cells of an entry that are not names of the registry."""
