"""One rule of a table: when it applies, what it decides, and how it is tested."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from dspark.condition import Condition
from dspark.diagnostics import Place
from dspark.facts import Cell
from dspark.messages import Template

When = Mapping[str, Condition]
"""A conjunction: every named fact must be in an accepted cell."""


class Case(NamedTuple):
    """One in-table test: an input that must, or must not, be decided by the rule it stands in."""

    rule_id: str
    kind: str
    """`hit` or `miss`."""
    given: Mapping[str, object]
    """A config.json fragment, or a one-key mapping from `SOURCE_KINDS` (see `dspark.cases`)."""
    says: str
    """A phrase of the rendered refusal that no other rule prints; empty for a lane."""
    lane: str
    """The lane a hit must lead to; empty for a refusal."""
    expected: str
    """For a miss: the ID that must decide instead; empty when any other will do."""
    place: Place


class Rule(NamedTuple):
    """A rule. It is also the pre-built outcome that the graph's leaves hold."""

    id: str
    name: str
    when: tuple[When, ...]
    """Alternatives, any of which suffices; empty for the default and for `E` messages."""
    lane: str | None
    refuse: Template | None
    help: Template | None
    why: str
    refs: tuple[str, ...]
    before: frozenset[str]
    """IDs this rule goes before where both match."""
    cases: tuple[Case, ...]
    place: Place

    @classmethod
    def bare(cls, rule_id: str, place: Place, name: str = "") -> Rule:
        """A rule that matches and decides nothing: what is left of one that was unreadable."""
        return cls(rule_id, name, (), None, None, None, "", (), frozenset(), (), place)

    def matches(self, cells: Mapping[str, Cell]) -> bool:
        """Whether the rule applies to these cells: the definition; the fast path is the graph."""
        for when in self.when:
            for fact, condition in when.items():
                if (cells[fact] in condition.cells) == condition.negated:
                    break
            else:
                return True
        return False


def first_of(rules: Collection[Rule]) -> Rule | None:
    """The rule that decides where all of these match: the one that goes before every other.

    None if there is no such rule, or if one of the others goes before it in turn. What A goes
    before B and B before C say of A and C is nothing.
    """
    for rule in rules:
        if all(
            other is rule or (other.id in rule.before and rule.id not in other.before)
            for other in rules
        ):
            return rule
    return None


def letter(rule_id: str) -> str:
    """The letter that says what an ID names; a rule pack's IDs have its name before them."""
    return rule_id.rpartition(":")[2][:1]


class Retired(NamedTuple):
    """The tombstone of an ID that once had a meaning: it may not be given another."""

    id: str
    name: str
    since: str
    use: str
    place: Place
