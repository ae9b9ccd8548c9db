"""Every way a computation that asks `Choices` can go, with how likely each is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

import numpy as np

from dspark.runtime.choices import Purpose

T = TypeVar("T")


class Path:
    """`Choices` that follow `forced` options, then take the first possible one each time.

    `likelihood` is the product of the chances of what was taken; `others` are the paths that
    branch off behind the forced part.
    """

    def __init__(self, forced: list[int]) -> None:
        self._forced = forced
        self._taken: list[int] = []
        self.likelihood = 1.0
        self.others: list[list[int]] = []

    def _choose(self, chances: np.ndarray) -> int:
        options = [int(option) for option in np.flatnonzero(chances > 0)]
        if len(self._taken) < len(self._forced):
            option = self._forced[len(self._taken)]
        else:
            option = options[0]
            self.others += [[*self._taken, other] for other in options[1:]]
        self._taken.append(option)
        self.likelihood *= float(chances[option])
        return option

    def pick(self, weights: np.ndarray, place: int, purpose: Purpose) -> int:
        del place, purpose
        wide = weights.astype(np.float64)
        return self._choose(wide / wide.sum())

    def accept(self, probability: float, place: int) -> bool:
        del place
        return self._choose(np.array([1 - probability, probability])) == 1


def every_path(run: Callable[[Path], T]) -> Iterator[tuple[T, float]]:
    """What `run` returns on each path, and how likely the path is."""
    todo: list[list[int]] = [[]]
    while todo:
        path = Path(todo.pop())
        yield run(path), path.likelihood
        todo += path.others


def law(run: Callable[[Path], T]) -> dict[T, float]:
    """How likely each result of `run` is."""
    out: dict[T, float] = {}
    for result, likelihood in every_path(run):
        out[result] = out.get(result, 0.0) + likelihood
    return out
