"""How tests run the kernels that ship: from numbers and back to numbers."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dspark.kernels import bf16
from dspark.kernels.arrays import DeviceArray
from dspark.kernels.host.report import Report
from dspark.kernels.host.simulator import Schedule
from dspark.kernels.launch import Device
from dspark.kernels.signatures import FOLDER, kernels_in
from tests.support.kernel_device import driver_for

Floats = npt.NDArray[np.float64]

KERNELS = kernels_in(Path(os.environ.get("DSPARK_MUTANT", FOLDER)))
"""Those that ship; `kernel_mutation.py` puts a folder of broken ones in their place."""

HALF_ULP = 2.0**-8
"""How far rounding to bfloat16 moves a number, at the most, by its own size."""


class Bench:
    """A device with arrays that have names; `device` is there for everything else.

    It is a simulated one unless DSPARK_KERNEL_DEVICE says otherwise: see `kernel_device.py`.
    """

    def __init__(self, folder: Path, schedule: Schedule, mode: str = "checked") -> None:
        self.driver = driver_for(folder, schedule, mode)
        self.device = Device(self.driver, KERNELS)

    def bf16(self, values: npt.ArrayLike, name: str) -> DeviceArray:
        return self.device.array(bf16.to_bits(values), "bf16", name)

    def i32(self, values: npt.ArrayLike, name: str) -> DeviceArray:
        return self.device.array(np.asarray(values, np.int32), "i32", name)

    def f32(self, values: npt.ArrayLike, name: str) -> DeviceArray:
        return self.device.array(np.asarray(values, np.float32), "f32", name)

    def poison(self, shape: tuple[int, ...], name: str, dtype: str = "bf16") -> DeviceArray:
        """An array that holds NaN, or -1, wherever nobody writes."""
        return self.device.empty(shape, dtype, name)

    def launch(self, kernel: str, grid: Any, block: int, *args: Any, smem: int = 0) -> Report:
        """Launches and says what moved."""
        self.device.kernel(kernel)(grid, block, args, smem=smem)
        return self.driver.reports[-1][1]

    def floats(self, array: DeviceArray) -> Floats:
        """The content of a bf16 array."""
        return bf16.from_bits(self.device.read(array)).astype(np.float64)

    def ints(self, array: DeviceArray) -> list[Any]:
        values: list[Any] = self.device.read(array).tolist()
        return values


def rounded(values: npt.ArrayLike) -> Floats:
    """`values` as bfloat16 holds them."""
    return bf16.from_bits(bf16.to_bits(values)).astype(np.float64)


def requested(report: Report) -> int:
    """Bytes that all threads asked for, read and written."""
    moved = (*report.reads.values(), *report.writes.values())
    return sum(each.requested for each in moved)
