"""Where the tests of the kernels run them: on the simulator, or where DSPARK_KERNEL_DEVICE says.

`cuda` is the GPU of this machine. `rehearsal` is the simulator with all that a GPU has not taken
from it, so that the way to a GPU is tested where there is none.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from dspark.kernels.driver import Argument, Driver, Handle, Shape
from dspark.kernels.host.simulator import Schedule
from dspark.kernels.host_driver import HostDriver

PLACE = os.environ.get("DSPARK_KERNEL_DEVICE", "simulator")

WITHOUT_REPORT = "reads what a launch moved, which only the simulator says"
PROVOKES_FAULT = "provokes a fault, which only the simulator survives"
WITHOUT_BENCH = "runs no kernel on a bench"
"""Why a test, or what is left of it, is not for a GPU."""


class NoReport(Exception):
    """A report was looked at, and there is none; what the test had to say before was right."""


class Missing:
    """What a launch on a GPU leaves in the place of a report."""

    def __getattr__(self, name: str) -> NoReturn:
        raise NoReport(WITHOUT_REPORT)


class Nameless:
    """Device memory whose arrays have no names, and go when nobody has them any more."""

    buffers: tuple[Any, ...] = ()

    def free(self, name: str) -> None:
        """The tests' own references are all there is."""


class DeviceDriver:
    """Another driver as the tests use one: poisoned arrays, and an entry for every launch."""

    def __init__(self, driver: Driver, folder: Path, schedule: Schedule) -> None:
        self.name, self.most_shared = driver.name, driver.most_shared
        self.folder, self.schedule, self.memory = folder, schedule, Nameless()
        self.reports: list[tuple[str, Any]] = []
        self._driver = driver

    def __getattr__(self, name: str) -> Any:
        return getattr(self._driver, name)

    def load(self, file: Path, kernel: str) -> tuple[str, Any]:
        return kernel, self._driver.load(file, kernel)

    def launch(
        self,
        function: tuple[str, Any],
        grid: Shape,
        block: Shape,
        arguments: Sequence[Argument],
        shared_bytes: int,
        stream: Any,
    ) -> None:
        kernel, loaded = function
        self._driver.launch(loaded, grid, block, arguments, shared_bytes, stream)
        self.reports.append((kernel, Missing()))

    def empty(self, shape: tuple[int, ...], dtype: npt.DTypeLike, name: str) -> Handle:  # noqa: ARG002
        handle = self._driver.empty(shape, dtype, "")
        poison = np.full((*shape, np.dtype(dtype).itemsize), 0xFF, np.uint8)
        self._driver.write(handle, poison.view(dtype).reshape(shape))
        return handle


def driver_for(folder: Path, schedule: Schedule, mode: str) -> HostDriver | DeviceDriver:
    """The driver of a bench; a GPU has neither schedules nor modes, and `folder` keeps nothing."""
    if PLACE == "simulator":
        return HostDriver(folder, mode, schedule)
    if PLACE == "rehearsal":
        return DeviceDriver(HostDriver(folder, "fast", schedule), folder, schedule)
    if PLACE != "cuda":
        raise ValueError(f"DSPARK_KERNEL_DEVICE is simulator, rehearsal or cuda, not `{PLACE}`")
    return DeviceDriver(_gpu(), folder, schedule)


@cache
def _gpu() -> Driver:
    from dspark.kernels.cupy_driver import CupyDriver

    return CupyDriver()
