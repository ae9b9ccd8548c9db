"""What tests get where kernels run elsewhere than on the simulator: poison, entries, no reports."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dspark.kernels.driver import STORAGE
from dspark.kernels.host.simulator import IN_ORDER
from dspark.kernels.host_driver import HostDriver
from dspark.kernels.launch import Device
from dspark.kernels.signatures import kernels_in
from tests.support import kernel_device
from tests.support.kernel_device import DeviceDriver, NoReport, driver_for

SMALL = kernels_in(Path(__file__).parent / "cases")


class Zeroing(HostDriver):
    """A driver whose memory begins as zeros, as a GPU's may."""

    def empty(self, shape: tuple[int, ...], dtype: Any, name: str) -> Any:
        array = HostDriver.empty(self, shape, dtype, name)
        array[...] = 0
        return array


@pytest.fixture
def driver(compiled: Path) -> DeviceDriver:
    return DeviceDriver(Zeroing(compiled, "fast"), compiled, IN_ORDER)


@pytest.mark.parametrize("dtype", STORAGE)
def test_new_arrays_are_poisoned(dtype: str, driver: DeviceDriver) -> None:
    device = Device(driver, SMALL)

    content = device.read(device.empty((3, 5), dtype, "one"))

    assert (3, 5) == content.shape
    assert {0xFF} == set(content.tobytes())


def test_arrays_may_have_the_same_name(driver: DeviceDriver) -> None:
    device = Device(driver, SMALL)

    one, other = (device.array(np.full(2, each, np.int32), "i32", "out") for each in (1, 2))

    assert ([1, 1], [2, 2]) == (device.read(one).tolist(), device.read(other).tolist())
    assert () == driver.memory.buffers
    driver.memory.free("out")
    assert [1, 1] == device.read(one).tolist()


def test_a_launch_leaves_an_entry_that_says_nothing(driver: DeviceDriver) -> None:
    device = Device(driver, SMALL)
    position = device.array(np.zeros(1, np.int32), "i32")

    device.kernel("advance")(1, 32, [position])

    assert [1] == device.read(position).tolist()
    ((kernel, report),) = driver.reports
    assert "advance" == kernel
    with pytest.raises(NoReport, match="reads what a launch moved, which only the simulator says"):
        report.reads["position"]


def test_where_tests_run_is_one_of_three(compiled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_device, "PLACE", "simulator")
    assert isinstance(driver_for(compiled, IN_ORDER, "checked"), HostDriver)
    monkeypatch.setattr(kernel_device, "PLACE", "rehearsal")
    assert isinstance(driver_for(compiled, IN_ORDER, "checked"), DeviceDriver)
    monkeypatch.setattr(kernel_device, "PLACE", "gpu")
    with pytest.raises(ValueError, match="is simulator, rehearsal or cuda, not `gpu`"):
        driver_for(compiled, IN_ORDER, "checked")
