"""Random small tables, and the slow obvious way to decide with them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import NamedTuple

from hypothesis import strategies as st

from dspark.condition import PRESENT, Condition
from dspark.diagnostics import Place
from dspark.facts import ABSENT, ALONE, FACTS, OTHER, Cell
from dspark.messages import Template
from dspark.observe import Observation
from dspark.rule import Rule, When
from dspark.table import Source

NAMES = ("Alpha", "Beta", "Gamma")
FRESH = "Unheard"
LANES = ("one", "two")
NOWHERE = Place("table.yaml", 1, 1)


class RandomTable(NamedTuple):
    """Rules and their facts, before anything is proved about them."""

    facts: tuple[str, ...]
    rules: dict[str, Rule]
    default: Rule

    def source(self) -> Source:
        return Source(
            name="random",
            facts=dict.fromkeys(self.facts, NOWHERE),
            default=self.default.id,
            lanes=dict.fromkeys(LANES, NOWHERE),
            rules={**self.rules, self.default.id: self.default},
            retired={},
            place=NOWHERE,
            unread_when=frozenset(),
            unread_tests=frozenset(),
        )


def make_rule(
    rule_id: str,
    when: Sequence[When],
    lane: str | None = None,
    before: Iterable[str] = (),
) -> Rule:
    """A rule with nothing in it but what decides."""
    text = None if lane else Template.parse(f"refused by {rule_id}")
    return Rule(
        id=rule_id,
        name=f"rule-{rule_id.lower()}",
        when=tuple(when),
        lane=lane,
        refuse=text,
        help=None,
        why="",
        refs=(),
        before=frozenset(before),
        cases=(),
        place=NOWHERE,
    )


@st.composite
def fact_orders(draw: st.DrawFn) -> tuple[str, ...]:
    """Some facts in some order; `packaging`, if it is there, is first, as in every table."""
    chosen = draw(st.lists(st.sampled_from(sorted(FACTS)), min_size=1, max_size=3, unique=True))
    return tuple(sorted(chosen, key=lambda fact: fact != ALONE[0]))


def conditions(fact: str) -> st.SearchStrategy[Condition]:
    """Every kind of condition: a cell, a list, `not`, ABSENT and PRESENT."""
    cells = FACTS[fact].cells or (*NAMES, ABSENT)
    lists = st.frozensets(st.sampled_from(cells), min_size=1, max_size=3)
    return st.builds(Condition, lists, st.booleans()) | st.just(PRESENT)


@st.composite
def tables(draw: st.DrawFn, facts: Sequence[str] = ()) -> RandomTable:
    """Up to five rules with one or two alternatives each, some of them before others."""
    order = tuple(facts) or draw(fact_orders())
    ids = [f"{'RL'[number % 2]}00{number}" for number in range(1, 1 + draw(st.integers(1, 5)))]
    rules = {}
    for rule_id in ids:
        when = []
        for _ in range(draw(st.sampled_from((1, 1, 2)))):
            asked = draw(st.lists(st.sampled_from(order), min_size=1, unique=True))
            when.append({fact: draw(conditions(fact)) for fact in asked})
        others = [other for other in ids if other != rule_id]
        before = draw(st.frozensets(st.sampled_from(others), max_size=3)) if others else frozenset()
        lane = draw(st.sampled_from((None, *LANES)))
        rules[rule_id] = make_rule(rule_id, when, lane, before)
    return RandomTable(order, rules, make_rule("R000", ()))


def every_cell(facts: Sequence[str], *tables: RandomTable) -> Iterator[dict[str, Cell]]:
    """All combinations of cells that some input has, and that the tables could tell apart."""
    named = {
        fact: {
            cell
            for table in tables
            for rule in table.rules.values()
            for when in rule.when
            for cell in (when[fact].cells if fact in when else ())
        }
        for fact in facts
    }
    # An edit may name even OTHER: then a second fresh name stands for those that nobody names.
    fresh = {OTHER, FRESH}
    domains = [
        FACTS[fact].cells or [*sorted((named[fact] | fresh) - {None}, key=str), None]
        for fact in facts
    ]
    for cells in product(*domains):
        found = dict(zip(facts, cells, strict=True))
        alone = found.get(ALONE[0]) == ALONE[1]
        if not alone or all(cell is ABSENT for fact, cell in found.items() if fact != ALONE[0]):
            yield found


def naive(table: RandomTable, cells: Mapping[str, Cell]) -> Rule | None:
    """The rule that decides, by definition; None where nothing says which of several does."""
    matched = [
        rule
        for rule in table.rules.values()
        if any(all((cells[f] in c.cells) != c.negated for f, c in w.items()) for w in rule.when)
    ]
    if not matched:
        return table.default
    ids = {rule.id for rule in matched}
    given_way = {other for rule in matched for other in rule.before}
    first = [r for r in matched if ids <= {r.id} | r.before and r.id not in given_way]
    return first[0] if len(first) == 1 else None


def naive_matches(table: RandomTable, cells: Mapping[str, Cell]) -> set[str]:
    """IDs of the rules that apply to these cells."""
    return {rule.id for rule in table.rules.values() if rule.matches(cells)}


def observation(cells: Mapping[str, Cell], architectures: Sequence[str]) -> Observation:
    """What a config with these cells and entries looks like to the router."""
    return Observation(
        packaging=cells.get("packaging", "flat"),
        architectures=tuple(architectures),
        algorithm=cells.get("algorithm"),
        model_type=cells.get("model_type"),
        markov=cells.get("markov"),
        origins={},
        config={},
    )
