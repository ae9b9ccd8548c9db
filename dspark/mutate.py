"""Every small way to break a table: one edit of one rule each.

A rule or an alternative is deleted, a condition dropped, negated, widened or narrowed by one cell,
an outcome swapped, a `before` removed. Exchanged messages are tried by `dspark.check`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from dspark.condition import Condition, sort_cells
from dspark.facts import ABSENT, ALONE, FACTS, OTHER, Cell
from dspark.rule import Rule, When


class Mutant(NamedTuple):
    """One edit of one rule."""

    rule: Rule
    edit: str
    changed: Rule | None
    """The rule after the edit; None if it was deleted."""
    fact: str = ""
    told_apart: frozenset[Cell] = frozenset()
    """For an edit by one cell: the cells of `fact` that some rule in question tells apart there.

    All others are one cell to every rule that could decide, so OTHER stands for them, exactly as
    one branch of the graph does.
    """


def mutants(rules: Mapping[str, Rule], default: Rule) -> Iterator[Mutant]:
    """Every mutant of every rule but the default, whose conditions are what the others leave."""
    lanes = sorted({rule.lane for rule in rules.values() if rule.lane is not None})
    for rule in rules.values():
        if rule.id != default.id:
            yield Mutant(rule, "delete the rule", None)
        for lane in [None, *lanes]:
            if lane != rule.lane:
                changed = rule._replace(lane=lane, refuse=None if lane else default.refuse)
                yield Mutant(rule, f"decide {lane or 'refuse'} instead", changed)
        for other in sorted(rule.before):
            changed = rule._replace(before=rule.before - {other})
            yield Mutant(rule, f"remove before {other}", changed)
        for number, when in enumerate(rule.when):
            if len(rule.when) > 1:
                rest = rule.when[:number] + rule.when[number + 1 :]
                label = f"delete alternative {number + 1}"
                yield Mutant(rule, label, rule._replace(when=rest))
            for edit, edited, fact, cells in _edits(when, rules):
                whens = (*rule.when[:number], edited, *rule.when[number + 1 :])
                label = f"{edit} in alternative {number + 1}" if len(rule.when) > 1 else edit
                yield Mutant(rule, label, rule._replace(when=whens), fact, frozenset(cells))


def _told_apart(when: When, fact: str, rules: Mapping[str, Rule]) -> list[Cell]:
    """The cells of `fact` that matter where the rest of `when` holds, OTHER and ABSENT included."""
    closed = FACTS[fact].cells
    if closed is not None:
        return list(closed)
    rest = {other: condition for other, condition in when.items() if other != fact}
    named = {
        cell
        for rule in rules.values()
        for arm in rule.when
        if fact in arm and overlap(rest, {f: c for f, c in arm.items() if f != fact})
        for cell in arm[fact].cells
    }
    return [*sort_cells(named | {ABSENT}), OTHER]


def _edits(
    when: When, rules: Mapping[str, Rule]
) -> Iterator[tuple[str, When, str, Sequence[Cell]]]:
    for fact, condition in when.items():
        rest = {other: value for other, value in when.items() if other != fact}
        negated = condition._replace(negated=not condition.negated)
        yield f"drop {fact}", rest, "", ()
        yield f"negate {fact}", {**when, fact: negated}, "", ()
        domain = _told_apart(when, fact, rules)
        accepted = [cell for cell in domain if condition.accepts(cell)]
        for cell in domain:
            toggled = {**when, fact: Condition(condition.cells ^ {cell}, condition.negated)}
            if cell in accepted and len(accepted) > 1:
                yield f"narrow {fact} by {cell or 'ABSENT'}", toggled, fact, domain
            elif cell not in accepted:
                yield f"widen {fact} by {cell or 'ABSENT'}", toggled, fact, domain


def overlap(first: When, second: When) -> bool:
    """Whether some cells meet both conjunctions."""
    facts = first.keys() | second.keys()
    return all(_meet(fact, first.get(fact, _ANY), second.get(fact, _ANY)) for fact in facts)


_ANY = Condition(frozenset(), negated=True)


def _meet(fact: str, first: Condition, second: Condition) -> bool:
    closed = FACTS[fact].cells
    # A file of the ALONE cell has no other facts, so an overlap there alone proves nothing here.
    if closed is not None:
        return any(
            first.accepts(cell) and second.accepts(cell) for cell in closed if (fact, cell) != ALONE
        )
    if first.negated and second.negated:
        return True
    if first.negated or second.negated:
        (named, other) = (second, first) if first.negated else (first, second)
        return bool(named.cells - other.cells)
    return bool(first.cells & second.cells)
