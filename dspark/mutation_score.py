"""Would a table's own tests notice each small edit of its rules?

A mutant is killed when an in-table test turns red, rejected when the table no longer compiles (a
reviewer is told by the compiler), and idle when no config at all is decided differently. Anything
else has survived: someone could make that edit and nobody would know.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from dspark.compare import Difference, compare
from dspark.diagnostics import Place
from dspark.facts import OTHER, Cell
from dspark.graph import build
from dspark.mutate import Mutant, mutants, overlap
from dspark.observe import Observation
from dspark.rule import Case, Rule, first_of


class Survivor(NamedTuple):
    """An edit nobody would notice, with a config whose decision it changes."""

    mutant: Mutant
    difference: Difference


class Score(NamedTuple):
    """How a table's tests stood up."""

    killed: int
    rejected: int
    idle: tuple[Mutant, ...]
    survivors: tuple[Survivor, ...]

    @property
    def percent(self) -> float:
        caught = self.killed + self.rejected
        total = caught + len(self.survivors)
        return 100.0 * caught / total if total else 100.0


class Trial(NamedTuple):
    """An in-table test with the facts its input gave."""

    case: Case
    observation: Observation


def score(
    facts: Sequence[str], rules: Mapping[str, Rule], default: Rule, trials: Sequence[Trial]
) -> Score:
    """Runs every mutant of `rules` against `trials`."""
    bench = _Bench(facts, rules, default, trials)
    killed = rejected = 0
    idle: list[Mutant] = []
    survivors: list[Survivor] = []
    for mutant in mutants(rules, default):
        if bench.kills(mutant):
            killed += 1
        elif bench.rejects(mutant):
            rejected += 1
        else:
            changed = bench.changes(mutant)
            if changed is None:
                idle.append(mutant)
            else:
                survivors.append(Survivor(mutant, changed))
    return Score(killed, rejected, tuple(idle), tuple(survivors))


class _Question(NamedTuple):
    """One architecture entry of one trial: its cells, and the rules that match them."""

    cells: Mapping[str, Cell]
    matched: frozenset[str]


class _Bench:
    """The trials, with every rule's answer to each kept, so that a mutant re-asks one rule only."""

    def __init__(
        self,
        facts: Sequence[str],
        rules: Mapping[str, Rule],
        default: Rule,
        trials: Sequence[Trial],
    ) -> None:
        self.facts = facts
        self.rules = rules
        self.default = default
        self.beaten = {
            (first, second)
            for rule in rules.values()
            for first in rule.before
            for second in rule.before
        }
        self.trials: list[tuple[Case, dict[Cell, _Question]]] = []
        for trial in trials:
            seen = trial.observation
            questions: dict[Cell, _Question] = {}
            for entry in seen.architectures or (None,):
                cells = {fact: getattr(seen, fact, None) for fact in facts}
                cells["architecture"] = entry
                matched = frozenset(rule.id for rule in rules.values() if rule.matches(cells))
                questions[entry] = _Question(cells, matched)
            self.trials.append((trial.case, questions))

    def kills(self, mutant: Mutant) -> bool:
        """Whether some trial decides otherwise than its case demands."""
        rules = self._edited(mutant)
        rule, changed = mutant.rule, mutant.changed
        same_answer = (
            changed is not None and changed.lane == rule.lane and changed.before == rule.before
        )
        for case, questions in self.trials:
            after: dict[Cell, frozenset[str]] = {}
            touched = False
            for entry, question in questions.items():
                cells = question.cells
                if mutant.fact and cells[mutant.fact] not in mutant.told_apart:
                    cells = {**cells, mutant.fact: OTHER}
                matches = changed is not None and changed.matches(cells)
                matched = question.matched
                if matches != (rule.id in matched):
                    matched = matched ^ {rule.id}
                    touched = True
                elif not same_answer and (matches or not (matched or rule.id != self.default.id)):
                    touched = True
                after[entry] = matched
            # What the edited rule says of these cells has not changed, so neither has the decision.
            if touched or len(after) > 1:
                decided = self._decide(after, rules)
                if decided is not None and not agrees(case, decided):
                    return True
        return False

    def _decide(
        self, entries: Mapping[Cell, frozenset[str]], rules: Mapping[str, Rule]
    ) -> Rule | None:
        """The decision of these entries; None if the rules leave it open, as no compiler allows."""
        if len(entries) > 1:
            named = {
                cell
                for rule in rules.values()
                for when in rule.when
                if "architecture" in when
                for cell in when["architecture"].cells
            }
            kept = {entry: matched for entry, matched in entries.items() if entry in named}
            # As in `Table.decide`: where none is named, the first one stands for them all.
            entries = kept or dict([next(iter(entries.items()))])
        default = rules.get(self.default.id, self.default)
        answers = [
            first_of([rules[rule_id] for rule_id in matched]) if matched else default
            for matched in entries.values()
        ]
        if None not in answers and any(answer is not answers[0] for answer in answers):
            return CONFLICT
        return None if None in answers else answers[0]

    def rejects(self, mutant: Mutant) -> bool:
        """Whether the edited table no longer compiles: an overlap, or a rule that cannot decide."""
        if mutant.changed is not None and self._plainly_clashes(mutant.changed):
            return True
        built = build(self.facts, tuple(self._edited(mutant).values()), self.default)
        alive = {rule_id for rule_id in self.rules if rule_id in built.winners}
        dead = set(self.rules) - alive - {self.default.id}
        if mutant.changed is None:
            dead.discard(mutant.rule.id)
        return bool(built.clashes or dead)

    def _plainly_clashes(self, changed: Rule) -> bool:
        """A quick proof of an overlap that nothing settles; False proves nothing."""
        return any(
            other.id != changed.id
            and (other.id in changed.before) == (changed.id in other.before)
            # A third rule that goes before both could decide wherever the two meet.
            and (changed.id, other.id) not in self.beaten
            and any(overlap(mine, theirs) for mine in changed.when for theirs in other.when)
            for other in self.rules.values()
        )

    def changes(self, mutant: Mutant) -> Difference | None:
        """A change of decision the edit makes, or None if it makes none."""
        edited = self._edited(mutant)
        default = edited.get(self.default.id, self.default)
        found = compare(self.facts, (self.rules, self.default), (edited, default))
        return found[0] if found else None

    def _edited(self, mutant: Mutant) -> dict[str, Rule]:
        edited = dict(self.rules)
        if mutant.changed is None:
            del edited[mutant.rule.id]
        else:
            edited[mutant.rule.id] = mutant.changed
        return edited


def agrees(case: Case, decided: Rule) -> bool:
    """Whether a decision is what an in-table test demands, as far as rule and lane go."""
    if case.kind == "miss":
        return decided.id == case.expected if case.expected else decided.id != case.rule_id
    if decided.id != case.rule_id or (case.lane and decided.lane != case.lane):
        return False
    return not (case.says and decided.lane is not None)


CONFLICT = Rule.bare("E-", Place("", 0, 0), "conflict")
"""Stands for two entries of `architectures` that decide differently: no case asks for it by ID."""
