"""Two tables side by side: exactly which cells change decision, each kind with a witness."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from dspark.analyse import show, witness
from dspark.facts import ABSENT, ALONE, FACTS, OTHER, Cell
from dspark.graph import Node, build, decide
from dspark.rule import Rule

if TYPE_CHECKING:
    from dspark.compiled import Table


class Difference(NamedTuple):
    """Cells that one rule decided before and another decides now."""

    old: Rule
    new: Rule
    cells: tuple[Cell, ...]
    """One of those cells, in fact order."""
    witness: str
    """A config.json with those cells, as one line; empty where no JSON file can have them."""

    def to_json(self) -> dict[str, object]:
        return {
            "old": {"rule_id": self.old.id, "name": self.old.name, "lane": self.old.lane},
            "new": {"rule_id": self.new.id, "name": self.new.name, "lane": self.new.lane},
            "cells": list(self.cells),
            "witness": self.witness or None,
        }


def compare_tables(old: Table, new: Table) -> list[Difference]:
    """Every change of decision from one compiled table to another."""
    facts = tuple(fact for fact in FACTS if fact in old.facts or fact in new.facts)
    return [
        *compare(facts, (old.rules, old.default), (new.rules, new.default)),
        *changed_lists(old, new),
    ]


def changed_lists(old: Table, new: Table) -> list[Difference]:
    """Changes that only a list of several architectures shows.

    An entry that no rule names is ignored beside one that is named. Naming it, or naming it no
    longer, therefore changes lists even where the entry alone is decided as before. One change is
    shown for each such entry.
    """
    found = []
    for entry in sorted(old.architectures ^ new.architectures):
        for cells in old.built.winners.values():
            config = witness(old.facts, cells)
            named = config.get("architectures") if config is not None else None
            if config is None or not isinstance(named, list):
                continue
            config["architectures"] = [entry, *named]
            before, after = old.route(config), new.route(config)
            if not same_decision(before.rule, after.rule):
                found.append(Difference(before.rule, after.rule, cells, json.dumps(config)))
                break
    return found


def compare(
    facts: Sequence[str],
    old: tuple[Mapping[str, Rule], Rule],
    new: tuple[Mapping[str, Rule], Rule],
) -> list[Difference]:
    """Every change of decision between two sets of (rules, default), over all cells."""
    before = build(facts, tuple(old[0].values()), old[1]).root
    after = build(facts, tuple(new[0].values()), new[1]).root
    found: dict[tuple[str, str, str | None, str | None], Difference] = {}
    for first, second, cells in changed_leaves(before, after, facts):
        key = (first.id, second.id, first.lane, second.lane)
        if key not in found:
            found[key] = Difference(first, second, cells, show(facts, cells))
    return list(found.values())


def same_decision(first: Rule, second: Rule) -> bool:
    """Whether two rules answer alike: the same ID and name, the same lane or both refusals."""
    return first.id == second.id and first.lane == second.lane and first.name == second.name


def changed_leaves(
    before: Node, after: Node, facts: Sequence[str]
) -> Iterator[tuple[Rule, Rule, tuple[Cell, ...]]]:
    """Pairs of leaves that some cells reach in the two graphs and that answer differently."""
    seen: set[tuple[int, int]] = set()
    free: tuple[Cell, ...] = tuple(_free_cell(fact) for fact in facts)
    stack: list[tuple[Node, Node, tuple[Cell, ...]]] = [(before, after, free)]
    while stack:
        first, second, cells = stack.pop()
        if (id(first), id(second)) in seen:
            continue
        seen.add((id(first), id(second)))
        if isinstance(first, Rule) and isinstance(second, Rule):
            if not same_decision(first, second):
                yield first, second, cells
            continue
        index = min(node[0] for node in (first, second) if not isinstance(node, Rule))
        named: dict[Cell, None] = {}
        for node in (first, second):
            if not isinstance(node, Rule) and node[0] == index:
                named.update(dict.fromkeys(node[1]))
        closed = FACTS[facts[index]].cells
        choices = list(closed) if closed is not None else [*named, OTHER]
        for cell in choices:
            path = (*cells[:index], cell, *cells[index + 1 :])
            if (facts[index], cell) == ALONE:
                # Where no rule names this cell it shares a branch that asks on: there is no answer.
                path = (*path[: index + 1], *(ABSENT for _ in path[index + 1 :]))
                stack.append((decide(first, path), decide(second, path), path))
            else:
                stack.append((_step(first, index, cell), _step(second, index, cell), path))


def _step(node: Node, index: int, cell: Cell) -> Node:
    if isinstance(node, Rule) or node[0] != index:
        return node
    return node[1].get(cell, node[2])


def _free_cell(fact: str) -> Cell:
    closed = FACTS[fact].cells
    if closed is None:
        return None
    return None if None in closed else closed[0]
