"""Why a checkpoint got its decision, and what kept the nearest other rules from it."""

from __future__ import annotations

from typing import NamedTuple

from dspark.condition import Condition
from dspark.decision import Decision
from dspark.facts import Cell
from dspark.rule import Rule


class Failed(NamedTuple):
    """One condition that a rule has and the checkpoint does not meet."""

    fact: str
    wanted: Condition
    got: Cell


class NearMiss(NamedTuple):
    """A rule that nearly decided, with every condition that failed (none: it gave way)."""

    rule: Rule
    failed: tuple[Failed, ...]


def near_misses(decision: Decision, most: int = 3) -> tuple[NearMiss, ...]:
    """The rules closest to deciding: fewest failed conditions first, lanes first among equals.

    Near is a rule that names something this checkpoint has. One that only excludes what it has
    not, or shares nothing but the packaging, is not near.
    """
    seen = decision.observation
    if seen is None or decision.stage == "observe":
        return ()
    cells = {fact: getattr(seen, fact, None) for fact in decision.table.facts}
    cells["architecture"] = decision.architecture
    found = []
    for rule in decision.table.rules.values():
        if rule.id == decision.rule_id or not rule.when:
            continue
        best: tuple[Failed, ...] | None = None
        for when in rule.when:
            failed = tuple(
                Failed(fact, condition, cells[fact])
                for fact, condition in when.items()
                if not condition.accepts(cells[fact])
            )
            shared = [
                fact
                for fact, condition in when.items()
                if fact != "packaging"
                and not condition.negated
                and cells[fact] is not None
                and condition.accepts(cells[fact])
            ]
            if shared and (best is None or len(failed) < len(best)):
                best = failed
        if best is not None:
            found.append(NearMiss(rule, best))
    found.sort(key=lambda miss: (len(miss.failed), miss.rule.lane is None, miss.rule.id))
    return tuple(found[:most])
