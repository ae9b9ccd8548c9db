"""Device memory of the simulator: numpy arrays that lie apart from each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from dspark.kernels.errors import AllocationError

_ALIGNMENT = 256
"""What cudaMalloc promises."""

_GUARD = 4096
"""Bytes on both sides of an array that belong to none, so that what runs over it hits nothing."""


@dataclass(frozen=True, slots=True)
class Buffer:
    """One allocation. `name` is what findings call it."""

    name: str
    address: int
    size: int
    storage: npt.NDArray[np.uint8]


class Memory:
    """All the device memory there is for launches; whatever else a kernel touches is a finding."""

    def __init__(self) -> None:
        self._buffers: dict[str, Buffer] = {}

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        return tuple(self._buffers.values())

    def array(self, values: npt.ArrayLike, name: str) -> npt.NDArray[Any]:
        """A new array that holds `values`.

        Raises:
            AllocationError: there is an array of this name already.
        """
        given = np.asarray(values)
        made = self.empty(given.shape, given.dtype, name)
        made[...] = given
        return made

    def empty(self, shape: Sequence[int], dtype: npt.DTypeLike, name: str) -> npt.NDArray[Any]:
        """A new array of which every bit is set: NaN, and -1 in integers.

        Raises:
            AllocationError: there is an array of this name already.
        """
        if name in self._buffers:
            raise AllocationError(f"there is an array called `{name}` already")
        size = prod(shape) * np.dtype(dtype).itemsize
        storage = np.full(size + 2 * _GUARD + _ALIGNMENT, 0xFF, np.uint8)
        begin = _GUARD + -(storage.ctypes.data + _GUARD) % _ALIGNMENT
        inside = storage[begin : begin + size]
        self._buffers[name] = Buffer(name, storage.ctypes.data + begin, size, storage)
        return inside.view(dtype).reshape(tuple(shape))

    def free(self, name: str) -> None:
        """Takes the array called `name` out of the memory; using it is a finding from here on."""
        del self._buffers[name]

    def holds(self, array: npt.NDArray[Any]) -> bool:
        """Whether all of `array`, which may be a view, lies in one allocation."""
        begin = array.ctypes.data
        return any(
            each.address <= begin and begin + array.nbytes <= each.address + each.size
            for each in self._buffers.values()
        )
