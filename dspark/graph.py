"""Rules -> decision graph, and the walk that decides.

A node asks one fact and has a branch per cell that a rule still in question names, plus one for
every other cell. Equal sub-graphs are one object, and a node whose branches all lead to the same
place is left out. A leaf is the rule itself, so that a decision allocates nothing: it is a few
dict look-ups, the same number whether the table has twelve rules or ten thousand.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from dspark.condition import Condition, sort_cells
from dspark.errors import DsparkError
from dspark.facts import ABSENT, ALONE, FACTS, OTHER, Cell, Fact
from dspark.rule import Rule, first_of

Node: TypeAlias = "tuple[int, dict[Cell, Node], Node] | Rule"
"""(index of the fact asked, branch per named cell, branch for every other cell), or a leaf."""

LARGEST = 2_000_000
"""Branches a graph may have. Rules that exclude one another pairwise can multiply; a table that
gets here is refused as a whole, never analysed in part."""


class TooLarge(DsparkError):
    """The rules multiply into more branches than `LARGEST`."""


class Clash(NamedTuple):
    """Two rules that match the same cells, and nothing says which goes first; with the cells."""

    first: Rule
    second: Rule
    cells: tuple[Cell, ...]


class Built(NamedTuple):
    """A graph and what building it, cell by cell, has proved."""

    root: Node
    clashes: tuple[Clash, ...]
    winners: Mapping[str, tuple[Cell, ...]]
    """Rule ID -> cells it decides; a rule that is not here decides nothing."""
    matched: Mapping[str, Mapping[str, tuple[Cell, ...]]]
    """ID of a rule that matched and lost -> IDs that won over it, with the cells of each."""
    preceded: frozenset[tuple[str, str]]
    """(ID, other ID) where some cells match both rules and the first says it goes before."""


def decide(root: Node, cells: Sequence[Cell]) -> Rule:
    """The rule that decides one combination of cells, given in the graph's fact order."""
    node: Any = root
    # A leaf is a tuple too (a NamedTuple): only the exact class tells a node from it, and fastest.
    while node.__class__ is tuple:
        index, branches, other = node
        node = branches.get(cells[index], other)
    assert node.__class__ is Rule  # INVARIANT: build() makes nothing else
    return node


def build(
    facts: Sequence[str],
    rules: Sequence[Rule],
    default: Rule,
    known: Mapping[str, Fact] = FACTS,
    *,
    ordered: bool = False,
) -> Built:
    """The graph of `rules`, each leaf resolved by the unique-hit policy.

    `known` says which cells each fact can take. With `ordered`, the first of several rules that
    match decides. Every combination of cells is visited exactly once, up to sharing. Raises
    TooLarge.
    """
    return _Builder(tuple(facts), rules, default, known, ordered).build()


class _Builder:
    def __init__(
        self,
        facts: tuple[str, ...],
        rules: Sequence[Rule],
        default: Rule,
        known: Mapping[str, Fact],
        ordered: bool,
    ) -> None:
        self.facts = facts
        self.ordered = ordered
        self.closed = [known[fact].cells for fact in facts]
        self.default = default
        # An arm is one alternative of one rule, its conditions laid out in fact order.
        self.arms = [
            (rule, tuple(when.get(fact) for fact in facts)) for rule in rules for when in rule.when
        ]
        self.settled = [_settled(conditions) for _, conditions in self.arms]
        self.memo: dict[tuple[int, tuple[int, ...]], Node] = {}
        self.shared: dict[tuple[int, tuple[tuple[Cell, int], ...], int], Node] = {}
        self.branches = 0
        self.clashes: dict[tuple[str, str], Clash] = {}
        self.winners: dict[str, tuple[Cell, ...]] = {}
        self.losers: dict[str, dict[str, tuple[Cell, ...]]] = {}
        self.preceded: set[tuple[str, str]] = set()

    def build(self) -> Built:
        root = self._node(0, tuple(range(len(self.arms))), ())
        clashes = tuple(self.clashes.values())
        return Built(root, clashes, self.winners, self.losers, frozenset(self.preceded))

    def _node(self, index: int, alive: tuple[int, ...], path: tuple[Cell, ...]) -> Node:
        if self.ordered:
            alive = self._until_settled(index, alive)
            if alive and self.settled[alive[0]] <= index:
                return self._leaf(alive, path)
        if index == len(self.facts):
            return self._leaf(alive, path)
        key = (index, alive)
        known = self.memo.get(key)
        if known is not None:
            return known
        node = self._branch(index, alive, path)
        self.memo[key] = node
        return node

    def _until_settled(self, index: int, alive: tuple[int, ...]) -> tuple[int, ...]:
        """The arms up to the first that matches whatever is asked from here on."""
        for number, arm in enumerate(alive):
            if self.settled[arm] <= index:
                return alive[: number + 1]
        return alive

    def _branch(self, index: int, alive: tuple[int, ...], path: tuple[Cell, ...]) -> Node:
        chosen: dict[Cell, list[int]] = {}
        excluding: list[int] = []
        everywhere: list[int] = []
        for arm in alive:
            condition = self.arms[arm][1][index]
            if condition is None:
                everywhere.append(arm)
            elif condition.negated:
                excluding.append(arm)
                for cell in condition.cells:
                    chosen.setdefault(cell, [])
            else:
                for cell in condition.cells:
                    chosen.setdefault(cell, []).append(arm)
        closed = self.closed[index]
        if closed is not None:
            # `PRESENT` names ABSENT, which some closed facts never are: no input is there.
            chosen = {cell: arms for cell, arms in chosen.items() if cell in closed}
        rest = sorted(everywhere + excluding)
        branches: dict[Cell, Node] = {}
        self.branches += len(chosen) + 1
        if self.branches > LARGEST:
            raise TooLarge
        for cell in sort_cells(chosen):
            arms = chosen[cell]
            if rest:
                kept = [a for a in excluding if cell not in self.arms[a][1][index].cells]  # type: ignore[union-attr]
                arms = sorted(everywhere + kept + arms)
            branches[cell] = self._child(index, cell, arms, path)
        others = self._other_cell(closed, branches)
        if others is _NONE:
            # Every cell of a closed fact is named: no input takes this branch.
            other = next(iter(branches.values()))
        else:
            other = self._child(index, others, rest, path)
        if all(child is other for child in branches.values()):
            return other
        branches = {cell: child for cell, child in branches.items() if child is not other}
        key = (index, tuple((cell, id(child)) for cell, child in branches.items()), id(other))
        return self.shared.setdefault(key, (index, branches, other))

    def _child(self, index: int, cell: Cell, arms: list[int], path: tuple[Cell, ...]) -> Node:
        if (self.facts[index], cell) == ALONE:
            later = range(index + 1, len(self.facts))
            absent = [a for a in arms if all(self._accepts_absent(a, fact) for fact in later)]
            return self._leaf(tuple(absent), (*path, cell, *(ABSENT for _ in later)))
        return self._node(index + 1, tuple(arms), (*path, cell))

    def _accepts_absent(self, arm: int, index: int) -> bool:
        condition = self.arms[arm][1][index]
        return condition is None or condition.accepts(ABSENT)

    @staticmethod
    def _other_cell(closed: tuple[Cell, ...] | None, named: Mapping[Cell, object]) -> Cell:
        """A cell that no branch names: a real one of a closed fact, a fresh word of an open one."""
        if closed is not None:
            return next((cell for cell in closed if cell not in named), _NONE)
        return OTHER

    def _leaf(self, alive: tuple[int, ...], path: tuple[Cell, ...]) -> Rule:
        if not alive:
            self.winners.setdefault(self.default.id, path)
            return self.default
        rules = list(dict.fromkeys(self.arms[arm][0].id for arm in alive))
        by_id = {self.arms[arm][0].id: self.arms[arm][0] for arm in alive}
        pairs = {(rule_id, other) for rule_id in rules for other in by_id[rule_id].before}
        self.preceded |= {(first, other) for first, other in pairs if first != other in by_id}
        winner = first_of(by_id.values())
        if winner is None:
            winner, other = _unsettled(list(by_id.values()))
            self.clashes.setdefault((winner.id, other.id), Clash(winner, other, path))
        self.winners.setdefault(winner.id, path)
        for rule_id in rules:
            if rule_id != winner.id:
                self.losers.setdefault(rule_id, {}).setdefault(winner.id, path)
        return winner


def _settled(conditions: Sequence[Condition | None]) -> int:
    """The index of the fact from which on an arm asks nothing."""
    asked = [index for index, condition in enumerate(conditions) if condition is not None]
    return asked[-1] + 1 if asked else 0


def _unsettled(rules: list[Rule]) -> tuple[Rule, Rule]:
    """The first two of these rules, by ID, of which neither goes before the other, or both do."""
    rules = sorted(rules, key=lambda rule: rule.id)
    for number, first in enumerate(rules):
        for second in rules[number + 1 :]:
            if (second.id in first.before) == (first.id in second.before):
                return first, second
    # Every two are settled, but in a ring: each goes before one and gives way to another.
    return rules[0], rules[1]


_NONE = "\0none"


def walk(root: Node) -> Iterator[Node]:
    """Every distinct node once, children after parents, in a fixed order."""
    seen: set[int] = set()
    stack = [root]
    while stack:
        node = stack.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        yield node
        if not isinstance(node, Rule):
            _, branches, other = node
            stack.append(other)
            stack.extend(reversed(list(branches.values())))
