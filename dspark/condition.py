"""One condition of a rule: the cells of one fact it accepts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from dspark.facts import ABSENT, Cell


class Condition(NamedTuple):
    """Accepts the listed cells, or with `negated` every cell but those.

    A negated condition also accepts OTHER, the cell of all strings that no rule names.
    """

    cells: frozenset[Cell]
    negated: bool = False

    def accepts(self, cell: Cell) -> bool:
        return (cell in self.cells) != self.negated

    def __str__(self) -> str:
        if self == PRESENT:
            return "PRESENT"
        words = ["ABSENT" if cell is None else cell for cell in sort_cells(self.cells)]
        text = words[0] if len(words) == 1 else f"[{', '.join(words)}]"
        return f"not {text}" if self.negated else text


PRESENT = Condition(frozenset({ABSENT}), negated=True)


def sort_cells(cells: Iterable[Cell]) -> list[Cell]:
    """Cells in a fixed order, ABSENT last, so that output never depends on hashing."""
    return sorted(cells, key=lambda cell: (cell is None, cell or ""))
