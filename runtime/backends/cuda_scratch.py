"""Where a device's operations leave their results: arrays by name, used again by every pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from dspark.kernels.arrays import DeviceArray
from dspark.kernels.driver import STORAGE
from dspark.kernels.launch import Device

_ROUND_UP = 1024
"""Values by which an array is larger than asked for, at the most, so that few passes outgrow it."""


class Scratch:
    """Named arrays that grow to the largest pass so far.

    Graphs hold the addresses of arrays, and no memory may be had while one is captured. So before
    an array grows, `before_growth` is called, which gives up all graphs.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        self._arrays: dict[str, DeviceArray] = {}
        self._constants: dict[str, npt.NDArray[Any]] = {}
        self.before_growth: Callable[[], None] = lambda: None

    def empty(self, name: str, shape: Sequence[int], dtype: str = "bf16") -> DeviceArray:
        """The array `name` in this shape; what it holds is what the last pass left there.

        Raises:
            AllocationError: there is not that much memory.
        """
        size = prod(shape)
        kept = self._arrays.get(name)
        if kept is None or kept.size < size:
            self.before_growth()
            most = -(-max(size, 1) // _ROUND_UP) * _ROUND_UP
            kept = self._arrays[name] = self._device.empty((most,), dtype)
            self._constants.pop(name, None)
        # INVARIANT: a name stands for one purpose, and so for one type.
        assert kept.dtype == dtype
        return kept.rows(0, size).reshape(*shape)

    def filled(self, name: str, values: npt.ArrayLike, dtype: str = "i32") -> DeviceArray:
        """The array `name` with these values; the device is left alone if it has them already."""
        wanted = np.asarray(values, STORAGE[dtype])
        array = self.empty(name, wanted.shape, dtype)
        held = self._constants.get(name)
        if held is None or held.shape != wanted.shape or not np.array_equal(held, wanted):
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

    def changed(self, name: str, values: npt.ArrayLike) -> None:
        """Notes what a kernel has made of an array that `filled` filled: the same shape."""
        held = self._constants[name]
        self._constants[name] = np.asarray(values, held.dtype).reshape(held.shape).copy()
