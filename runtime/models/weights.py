"""Tensors by name, each taken once, with the shape its model expects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dspark.runtime.errors import WeightError


class Weights:
    """The tensors of one checkpoint on their way into a model.

    Every tensor must be taken, and every one taken must be there: a draft that runs with a head
    nobody wrote accepts nothing and says nothing.
    """

    def __init__(self, tensors: Mapping[str, Any]) -> None:
        self._tensors = tensors
        self._taken: set[str] = set()

    def __contains__(self, name: str) -> bool:
        return name in self._tensors

    def take(self, name: str, *shape: int) -> Any:
        """The tensor called `name`.

        Raises:
            WeightError: it is absent, or has another shape.
        """
        if name not in self._tensors:
            raise WeightError(f"tensor `{name}` is missing")
        tensor = self._tensors[name]
        if tuple(tensor.shape) != shape:
            raise WeightError(f"tensor `{name}` has shape {list(tensor.shape)}, not {list(shape)}")
        self._taken.add(name)
        return tensor

    def finish(self) -> None:
        """Confirms that nothing was left over.

        Raises:
            WeightError: a tensor belongs to no part of the model.
        """
        left = sorted(set(self._tensors) - self._taken)
        if left:
            raise WeightError(f"no part of the model takes tensor `{left[0]}` ({len(left)} left)")
