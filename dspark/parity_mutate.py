"""Every small way to break a pack: one edit of one rule each.

A pack's rules stand in an order, so what an edit changes can be told from the cells it adds to a
rule or takes from it: added cells change hands where a later rule has them, removed ones where this
rule has them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from dspark.condition import Condition, sort_cells
from dspark.facts import OTHER, Cell
from dspark.parity_pack import Pack
from dspark.rule import Rule, When

Conditions = Sequence[Mapping[str, Condition]]
"""Conjunctions that must all hold: the cells of a region."""


class Edit(NamedTuple):
    """One edit of one rule: what it is called, and the regions whose cells change hands."""

    rule: Rule
    label: str
    added: Sequence[tuple[When, When]] = ()
    removed: Sequence[Conditions] = ()
    whole: bool = False
    """Whether it is about all that the rule decides: its outcome, or the rule itself."""


def edits(pack: Pack) -> Iterator[Edit]:
    """Every edit of every rule but the default, whose conditions are what the others leave."""
    outcomes = sorted({rule.lane or "" for rule in pack.rules.values()})
    rules = list(pack.rules.values())
    for rule in rules:
        if rule.id != pack.default.id:
            yield Edit(rule, "delete the rule", whole=True)
        for outcome in outcomes:
            if outcome != (rule.lane or ""):
                yield Edit(rule, f"say `{outcome or 'refuses'}` instead", whole=True)
        for number, when in enumerate(rule.when):
            where = f" in alternative {number + 1}" if len(rule.when) > 1 else ""
            if len(rule.when) > 1:
                yield Edit(rule, f"delete alternative {number + 1}", removed=((when,),))
            yield from _edits_of(pack, rule, when, where)
    for first, second in pairwise(rules):
        both = [(mine, their) for mine in first.when for their in second.when]
        met = [pair for pair in both if _meet(*pair, pack)]
        if met:
            yield Edit(first, f"exchange it with {second.id}", removed=met)


def _edits_of(pack: Pack, rule: Rule, when: When, where: str) -> Iterator[Edit]:
    for fact, condition in when.items():
        rest = {other: value for other, value in when.items() if other != fact}
        outside = {fact: condition._replace(negated=not condition.negated)}
        yield Edit(rule, f"drop {fact}{where}", added=((rest, outside),))
        yield Edit(rule, f"negate {fact}{where}", ((rest, outside),), ((when,),))
        domain = _told_apart(pack, rest, fact)
        accepted = [cell for cell in domain if condition.accepts(cell)]
        for cell in domain:
            named = frozenset(domain) - {OTHER}
            one = Condition(named, negated=True) if cell == OTHER else Condition(frozenset({cell}))
            label = f"{fact} by {'ABSENT' if cell is None else cell}{where}"
            if cell not in accepted:
                yield Edit(rule, f"widen {label}", added=((rest, {fact: one}),))
            elif len(accepted) > 1:
                yield Edit(rule, f"narrow {label}", removed=((rest, {fact: one}),))


def _told_apart(pack: Pack, rest: When, fact: str) -> Sequence[Cell]:
    """The cells of `fact` that some rule tells apart where `rest` holds, OTHER and ABSENT too."""
    closed = pack.known[fact].cells
    if closed is not None:
        return closed
    named = {
        cell
        for rule in pack.rules.values()
        for arm in rule.when
        if fact in arm and _meet(rest, arm, pack)
        for cell in arm[fact].cells
    }
    return [*sort_cells(named | {None}), OTHER]


def _meet(first: When, second: When, pack: Pack) -> bool:
    """Whether some cells meet both conjunctions."""
    for fact, mine in first.items():
        theirs = second.get(fact)
        if theirs is None:
            continue
        if mine.negated and theirs.negated:
            closed = pack.known[fact].cells
            if closed is not None and not set(closed) - mine.cells - theirs.cells:
                return False
        elif mine.negated or theirs.negated:
            named, other = (theirs, mine) if mine.negated else (mine, theirs)
            if not named.cells - other.cells:
                return False
        elif not mine.cells & theirs.cells:
            return False
    return True
