"""What a step runs on: a device, how large everything is there, and where to write things down."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.gpu.notes import Notes, Skipped
from benchmarks.gpu.sizes import FULL, TINY, Sizes
from dspark.kernels.arrays import DeviceArray
from dspark.kernels.driver import Driver
from dspark.kernels.launch import Device
from dspark.kernels.signatures import kernels_in

if TYPE_CHECKING:
    import torch

HERE = Path(__file__).parent
BUILD = HERE.parents[1] / "build"


@dataclass(slots=True)
class Bed:
    """See the module. `torch_device` is where torch has the device's memory;
    in a `rehearsal` the device is the simulator.

    `device` has the kernels of this folder beside those that ship.
    """

    device: Device
    notes: Notes
    sizes: Sizes
    torch_device: str
    rehearsal: bool

    @property
    def driver(self) -> Driver:
        return self.device.driver

    def another_device(self) -> Device:
        """A device on the same driver, with graphs of its own."""
        return _device(self.driver)

    def as_torch(self, array: DeviceArray) -> torch.Tensor:
        """The memory of an array of bf16, as torch's own bfloat16."""
        # INVARIANT: torch knows no such type of NumPy's or CuPy's, but all know what 16 bits are.
        assert array.dtype == "bf16"
        import torch

        return torch.as_tensor(array.handle.view("int16")).view(torch.bfloat16)

    def random(self, *shape: int) -> DeviceArray:
        """An array of bf16 that holds normal numbers."""
        array = self.device.empty(shape, "bf16")
        self.as_torch(array).normal_(0.0, 0.02)
        self.settle()
        return array

    def settle(self) -> None:
        """Returns when torch and the device have done all they were given."""
        if self.torch_device == "cuda":
            import torch

            torch.cuda.synchronize()
        self.device.synchronize()

    def seconds(self, work: Callable[[], object], repeats: int) -> float:
        """The median time of `work`, which may return before the device is done with it."""
        found = []
        for turn in range(repeats + 1):
            self.settle()
            started = time.perf_counter()
            work()
            self.settle()
            # What is loaded or tuned at first use is not what is asked for.
            if turn:
                found.append(time.perf_counter() - started)
        return statistics.median(found)


def open_bed(folder: Path, step: str, *, rehearsal: bool) -> Bed:
    """The bed of `step` on the GPU of this machine, or of a rehearsal on the simulator.

    Raises:
        Skipped: a package is missing.
        DsparkError: there is no compiler.
    """
    notes = Notes(folder, step, rehearsal=rehearsal)
    if rehearsal:
        from dspark.kernels.host_driver import HostDriver

        driver: Any = HostDriver(BUILD / "kernels-host", "fast")
        return Bed(_device(driver), notes, TINY, "cpu", rehearsal=True)
    need("cupy")
    from dspark.kernels.cupy_driver import CupyDriver

    return Bed(_device(CupyDriver()), notes, FULL, "cuda", rehearsal=False)


def need(*packages: str) -> None:
    """Returns if they are all installed.

    Raises:
        Skipped: one is not.
    """
    from importlib.util import find_spec

    for package in packages:
        if find_spec(package) is None:
            raise Skipped(f"the package `{package}` is not installed")


def _device(driver: Driver) -> Device:
    return Device(driver, {**kernels_in(), **kernels_in(HERE)})
