"""Where our table and an engine answer differently, and whether each such place is meant."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from dspark.cases import source_kind
from dspark.compiled import Table
from dspark.condition import Condition, sort_cells
from dspark.facts import OTHER, Cell
from dspark.graph import decide
from dspark.parity_facts import Question
from dspark.parity_pack import REFUSES, RUNS, UNKNOWN, Answer, Divergence, Pack, show_question
from dspark.rule import Rule, When

LANES, REFUSALS = "lanes", "refusals"
"""What `ours` may say for all our rules of a kind."""

_BASES = 3
"""Configs per rule of ours that are tried with every rule of a pack."""

_STEPS = 8
"""Changes that are tried to get one of them past the earlier rules."""

_ORDER = {"flag": 0, "words": 1, "key": 2, "entry": 3}


class Difference(NamedTuple):
    """One of our rules and one of the engine's that decide the same draft differently."""

    ours: Rule
    theirs: Answer
    witness: str
    """A question that shows it, as one line of JSON."""

    def to_json(self) -> dict[str, object]:
        return {
            "ours": {"rule_id": self.ours.id, "name": self.ours.name, "lane": self.ours.lane},
            "theirs": {
                "rule_id": self.theirs.rule.id,
                "name": self.theirs.rule.name,
                "outcome": self.theirs.outcome,
                "lane": self.theirs.lane or None,
            },
            "witness": self.witness,
        }


class Stale(NamedTuple):
    """A rule in a declared divergence that no draft shows."""

    divergence: Divergence
    rule_id: str


class ParityReport(NamedTuple):
    """What `dspark parity` found for one pack."""

    pack: Pack
    differences: tuple[Difference, ...]
    """Every pair of rules that differs, declared or not, each with one witness."""
    undeclared: tuple[Difference, ...]
    stale: tuple[Stale, ...]

    @property
    def passed(self) -> bool:
        return not (self.undeclared or self.stale)

    def to_json(self) -> dict[str, object]:
        return {
            "pack": self.pack.name,
            "declared": len(self.pack.divergences),
            "differences": len(self.differences),
            "undeclared": [each.to_json() for each in self.undeclared],
            "stale": [
                {"line": each.divergence.place.line, "rule_id": each.rule_id} for each in self.stale
            ],
        }


def hold_together(table: Table, pack: Pack) -> ParityReport:
    """Every difference between `table` and `pack`, and what the pack declares of them."""
    differences = tuple(find_differences(table, pack))
    undeclared = tuple(
        each for each in differences if not any(_covers(d, each) for d in pack.divergences)
    )
    return ParityReport(pack, differences, undeclared, tuple(_stale(pack, differences)))


def find_differences(table: Table, pack: Pack) -> Iterator[Difference]:
    """One difference for each pair of rules that has any."""
    seen: set[tuple[str, str]] = set()
    for question, cells in questions(table, pack, seen):
        decision = table.route(question.config)
        if decision.stage == "observe":
            continue  # no rule of ours was asked
        answer = pack.answer_of(decide(pack.built.root, cells), question, cells)
        pair = (decision.rule_id, answer.rule.id)
        if pair not in seen and differs(pack, decision.rule, answer):
            yield Difference(decision.rule, answer, show_question(question))
        seen.add(pair)


def differs(pack: Pack, ours: Rule, theirs: Answer) -> bool:
    """Whether the two say different things of a draft; what is unknown says nothing."""
    if theirs.outcome == UNKNOWN:
        return False
    if ours.lane is None:
        return theirs.outcome != REFUSES
    return theirs.outcome != RUNS or ours.lane not in pack.lanes[theirs.lane].ours


def questions(
    table: Table, pack: Pack, seen: Collection[tuple[str, str]]
) -> Iterator[tuple[Question, Sequence[Cell]]]:
    """The recorded cases of `pack`, and drafts of each of our rules bent to each of its rules.

    A draft of ours is one that a test of the table hits. It is changed until a rule of the pack
    matches, and then, step by step, until no earlier rule does. Pairs of rules that have been
    `seen` are not looked for again. Each comes with its cells.
    """
    yield from ((case.question, pack.cells(case.question)) for case in pack.cases)
    for ours, base in _bases(table):
        start = Question(base), pack.cells(Question(base))
        yield start
        for rule in pack.rules.values():
            for when in rule.when:
                if (ours, rule.id) not in seen:
                    yield from _bent(pack, rule, when, *start)


def _bent(
    pack: Pack, rule: Rule, when: When, question: Question, cells: Sequence[Cell]
) -> Iterator[tuple[Question, Sequence[Cell]]]:
    changes = _needed(pack, when, dict(zip(pack.facts, cells, strict=True)))
    for _ in range(_STEPS):
        question = pack.realise(changes, question)
        cells = pack.cells(question)
        yield question, cells
        decided = decide(pack.built.root, cells)
        if decided is rule or not decided.when:
            return
        away = _away(pack, decided, when, dict(zip(pack.facts, cells, strict=True)))
        if away is None:
            return
        changes = dict([away])


def _away(pack: Pack, rule: Rule, kept: When, cells: Mapping[str, Cell]) -> tuple[str, Cell] | None:
    """A fact and a cell with which `rule` no longer matches as it does, while `kept` still holds.

    What `kept` does not ask for is changed first, what the user types rather than what the file
    says, and the architecture last.
    """
    matching = [w for w in rule.when if all(c.accepts(cells[f]) for f, c in w.items())]
    order = {asked.name: _ORDER[asked.source] for asked in pack.asked}
    for fact in sorted(matching[0], key=lambda fact: (fact in kept, order[fact])):
        choices = pack.choices[fact]
        wanted = kept.get(fact)
        for cell in choices:
            if not matching[0][fact].accepts(cell) and (wanted is None or wanted.accepts(cell)):
                return fact, cell
    return None


def _bases(table: Table) -> Iterator[tuple[str, Mapping[str, object]]]:
    for rule in table.rules.values():
        hits = [case.given for case in rule.cases if case.kind == "hit"]
        configs = [given for given in hits if not source_kind(given)]
        yield from ((rule.id, config) for config in configs[:_BASES])


def _needed(pack: Pack, when: When, cells: Mapping[str, Cell]) -> dict[str, Cell]:
    """The facts of `when` that these cells do not meet, with a cell that would."""
    return {
        fact: _some_cell(condition, pack.known[fact].cells)
        for fact, condition in when.items()
        if not condition.accepts(cells[fact])
    }


def _some_cell(condition: Condition, closed: tuple[Cell, ...] | None) -> Cell:
    if not condition.negated:
        return sort_cells(condition.cells)[0]
    choices: Sequence[Cell] = closed if closed is not None else (None, OTHER)
    return next((cell for cell in choices if condition.accepts(cell)), None)


def _covers(divergence: Divergence, difference: Difference) -> bool:
    kind = LANES if difference.ours.lane is not None else REFUSALS
    return difference.theirs.rule.id in divergence.theirs and (
        difference.ours.id in divergence.ours or kind in divergence.ours
    )


def _stale(pack: Pack, differences: Sequence[Difference]) -> Iterator[Stale]:
    for divergence in pack.divergences:
        covered = [each for each in differences if _covers(divergence, each)]
        shown = {each.theirs.rule.id for each in covered} | {each.ours.id for each in covered}
        shown |= {LANES if each.ours.lane is not None else REFUSALS for each in covered}
        for rule_id in (*divergence.theirs, *divergence.ours):
            if rule_id not in shown:
                yield Stale(divergence, rule_id)
