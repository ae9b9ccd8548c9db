"""Where a device's operations leave their results: arrays by name, used again by every pass."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, Protocol
from weakref import WeakSet

import numpy as np
import numpy.typing as npt

from dspark.kernels.arrays import DeviceArray
from dspark.kernels.driver import STORAGE
from dspark.kernels.launch import Device

_FEWEST = 1024
"""Values of the smallest array."""


class GraphHolder(Protocol):
    """Whoever captures graphs over a scratch's arrays."""

    def release(self) -> None:
        """Gives up all of them."""
        ...


class Scratch:
    """Named arrays that grow to the largest pass so far.

    Graphs hold the addresses of arrays, and no memory may be had while one is captured. So before
    an array grows, all `holders` give up their graphs. Several engines may use one scratch: what is
    noted of its content is noted here, and not with them.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        self._arrays: dict[str, DeviceArray] = {}
        self._constants: dict[str, npt.NDArray[Any]] = {}
        self.holders: WeakSet[GraphHolder] = WeakSet()
        self.notes: dict[str, Any] = {}
        """What else is known of an array's content, by name; forgotten when the array grows."""

    def empty(self, name: str, shape: Sequence[int], dtype: str = "bf16") -> DeviceArray:
        """The array `name` in this shape; what it holds is what the last pass left there.

        Raises:
            AllocationError: there is not that much memory.
        """
        size = prod(shape)
        kept = self._arrays.get(name)
        if kept is None or kept.size < size:
            self.release_graphs()
            kept = self._arrays[name] = self._device.empty((_room(size),), dtype)
            self._constants.pop(name, None)
            self.notes.pop(name, None)
        # INVARIANT: a name stands for one purpose, and so for one type.
        assert kept.dtype == dtype
        return kept.rows(0, size).reshape(*shape)

    def filled(self, name: str, values: npt.ArrayLike, dtype: str = "i32") -> DeviceArray:
        """The array `name` with these values; the device is left alone if it has them already."""
        wanted = np.asarray(values, STORAGE[dtype])
        array = self.empty(name, wanted.shape, dtype)
        held = self._constants.get(name)
        if held is None or not np.array_equal(held, wanted):
            self._device.write(array, wanted)
            self._constants[name] = wanted.copy()
        return array

    def once(self, name: str, shape: Sequence[int], dtype: str, value: float) -> DeviceArray:
        """The array `name` with `value` everywhere, as far as no kernel has changed it since."""
        kept = self._arrays.get(name)
        array = self.empty(name, shape, dtype)
        if self._arrays[name] is not kept:
            whole = self._arrays[name]
            self._device.write(whole, np.full(whole.shape, value, STORAGE[dtype]))
        return array

    def release_graphs(self) -> None:
        """Makes room for an allocation: no graph is left."""
        for holder in self.holders:
            holder.release()

    def changed(self, name: str, values: npt.ArrayLike) -> None:
        """Notes what a kernel has made of an array that `filled` filled: the same shape."""
        held = self._constants[name]
        self._constants[name] = np.asarray(values, held.dtype).reshape(held.shape).copy()


def _room(size: int) -> int:
    """At least `size` values, an eighth more at the most: what grows slowly must not grow often."""
    step = 1 << max(size.bit_length() - 4, 0)
    return max(_FEWEST, -(-size // step) * step)
