"""Would the recorded cases of a pack notice each small edit of its rules?

Nothing is compiled again: an edit says which cells change hands. One that moves no cell of any
input is idle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from dspark.condition import Condition
from dspark.facts import OTHER, Cell
from dspark.graph import walk
from dspark.parity_mutate import Conditions, Edit, edits
from dspark.parity_pack import Pack, show_question
from dspark.rule import Rule, When


class Survivor(NamedTuple):
    """An edit that no case notices, with a question whose answer it changes."""

    edit: Edit
    witness: str


class Score(NamedTuple):
    """How a pack's cases stood up."""

    killed: int
    idle: int
    survivors: tuple[Survivor, ...]


class Trial(NamedTuple):
    """A recorded case that the pack agrees with."""

    cells: Mapping[str, Cell]
    winner: str
    """ID of the rule that decides it."""


def score(pack: Pack, trials: Sequence[Trial]) -> Score:
    """Tries every edit of every rule of `pack` on `trials`."""
    bench = _Bench(pack, trials)
    killed = idle = 0
    survivors = []
    for edit in edits(pack):
        if bench.kills(edit):
            killed += 1
            continue
        witness = bench.change(edit)
        if witness:
            survivors.append(Survivor(edit, witness))
        else:
            idle += 1
    return Score(killed, idle, tuple(survivors))


class _Bench:
    def __init__(self, pack: Pack, trials: Sequence[Trial]) -> None:
        self.pack = pack
        self.order = {rule_id: number for number, rule_id in enumerate(pack.rules)}
        self.order[pack.default.id] = len(self.order)
        self.won: dict[str, list[Trial]] = {}
        for trial in trials:
            self.won.setdefault(trial.winner, []).append(trial)
        self.trials = trials
        self.below = _rules_below(pack.built.root, self.order)
        self.meeting: dict[tuple[str, int], list[Trial]] = {}
        self.kept: list[When] = []
        self.arms = [
            (number, when) for number, rule in enumerate(pack.rules.values()) for when in rule.when
        ]

    def kills(self, edit: Edit) -> bool:
        """Whether some case would get another answer."""
        mine = self.won.get(edit.rule.id, ())
        if edit.whole:
            return bool(mine)
        if edit.removed and any(self._left(edit, trial.cells) for trial in mine):
            return True
        return any(
            all(condition.accepts(trial.cells[fact]) for fact, condition in last.items())
            for rest, last in edit.added
            for trial in self._later(edit.rule, rest)
        )

    def _later(self, rule: Rule, rest: When) -> Sequence[Trial]:
        """The trials that a later rule decides and that meet `rest`; many edits share it."""
        key = (rule.id, id(rest))
        if key not in self.meeting:
            number = self.order[rule.id]
            self.meeting[key] = [
                trial
                for trial in self.trials
                if self.order[trial.winner] > number and _holds((rest,), trial.cells)
            ]
            self.kept.append(rest)  # or its identity could become another's
        return self.meeting[key]

    def _left(self, edit: Edit, cells: Mapping[str, Cell]) -> bool:
        """Whether the edit takes these cells from its rule, and no other alternative has them."""
        if not any(_holds(region, cells) for region in edit.removed):
            return False
        kept = sum(_holds((when,), cells) for when in edit.rule.when)
        return kept == 1 or edit.label.startswith("exchange")

    def change(self, edit: Edit) -> str:
        """A question whose answer the edit changes, as one line of JSON; empty if there is none."""
        number = self.order[edit.rule.id]
        if edit.whole:
            regions: Sequence[Conditions] = [(when,) for when in edit.rule.when] or [()]
            return self._search(regions, 1 << number)
        added = [region for region in edit.added if not self._taken(region, number)]
        removed = [region for region in edit.removed if not self._taken(region, number)]
        later = -1 << (number + 1)
        return self._search(added, later) or self._search(
            removed, 1 << number, lambda cells: self._left(edit, cells)
        )

    def _taken(self, region: Conditions, number: int) -> bool:
        """A quick proof that an earlier rule has all cells of the region; False proves nothing."""
        return any(
            all(
                any(fact in part and _within(part[fact], condition) for part in region)
                for fact, condition in when.items()
            )
            for earlier, when in self.arms
            if earlier < number
        )

    def _search(
        self,
        regions: Sequence[Conditions],
        wanted: int,
        fits: Callable[[Mapping[str, Cell]], bool] = lambda _: True,
    ) -> str:
        """A question in one of the regions that one of the `wanted` rules, a bit each, decides."""
        for region in regions:
            for cells in _leaves(self.pack, region, wanted, self.below):
                if fits(cells):
                    question = self.pack.realise(cells)
                    read = dict(zip(self.pack.facts, self.pack.cells(question), strict=True))
                    # Two facts may read one key: what no question can hold is nobody's answer.
                    if read == dict(cells):
                        return show_question(question)
        return ""


def _holds(region: Conditions, cells: Mapping[str, Cell]) -> bool:
    return all(
        condition.accepts(cells[fact]) for when in region for fact, condition in when.items()
    )


def _within(inner: Condition, outer: Condition) -> bool:
    """Whether every cell that `inner` accepts is accepted by `outer`."""
    if inner.negated:
        return outer.negated and outer.cells <= inner.cells
    return not inner.cells & outer.cells if outer.negated else inner.cells <= outer.cells


def _rules_below(root: Any, order: Mapping[str, int]) -> dict[int, int]:
    """Node's identity -> the rules that some path from it leads to, a bit each."""
    found: dict[int, int] = {}

    def visit(node: Any) -> int:
        if isinstance(node, Rule):
            return 1 << order[node.id]
        known = found.get(id(node))
        if known is None:
            known = visit(node[2])
            for child in node[1].values():
                known |= visit(child)
            found[id(node)] = known
        return known

    visit(root)
    for node in walk(root):
        if isinstance(node, Rule):
            found[id(node)] = 1 << order[node.id]
    return found


def _leaves(
    pack: Pack, region: Conditions, wanted: int, below: Mapping[int, int]
) -> Iterator[Mapping[str, Cell]]:
    """Cells of the region that wanted rules decide, one for each way through the graph."""
    asked: dict[str, list[Condition]] = {}
    for when in region:
        for fact, condition in when.items():
            asked.setdefault(fact, []).append(condition)
    choices = [_choices(asked.get(fact, ()), pack.known[fact].cells) for fact in pack.facts]
    if not all(choices):
        return
    free = {fact: cells[0] for fact, cells in zip(pack.facts, choices, strict=True)}
    stack: list[tuple[Any, Any]] = [(pack.built.root, None)]
    seen: set[int] = set()
    while stack:
        node, path = stack.pop()
        if isinstance(node, Rule):
            cells = dict(free)
            while path is not None:
                fact, cell, path = path
                cells[fact] = cell
            yield cells
            continue
        if id(node) in seen:
            continue
        seen.add(id(node))
        index, branches, other = node
        fact = pack.facts[index]
        taken: set[int] = set()
        steps = []
        for cell in _steps(choices[index], asked.get(fact, ()), branches):
            child = branches.get(cell, other)
            if id(child) not in taken and below[id(child)] & wanted:
                taken.add(id(child))
                steps.append((child, (fact, cell, path)))
        stack += reversed(steps)  # what is absent most often is looked at first


def _steps(
    choices: Sequence[Cell], conditions: Sequence[Condition], branches: Mapping[Cell, object]
) -> Iterator[Cell]:
    yield from choices
    if any(not condition.negated for condition in conditions):
        return  # the choices are all there is
    for cell in branches:
        if not conditions or _accepted(conditions, cell):
            yield cell


def _accepted(conditions: Sequence[Condition], cell: Cell) -> bool:
    return all(condition.accepts(cell) for condition in conditions)


def _choices(conditions: Sequence[Condition], closed: tuple[Cell, ...] | None) -> list[Cell]:
    """Cells that meet the conditions; of an open fact those that are named, or a fresh one."""
    if closed is not None:
        cells: Sequence[Cell] = closed[::-1]
    else:
        named = [cell for c in conditions if not c.negated for cell in sorted(c.cells, key=str)]
        cells = named or [None, OTHER]
    return [cell for cell in cells if _accepted(conditions, cell)]
