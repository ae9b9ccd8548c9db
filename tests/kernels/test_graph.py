"""Graphs have CUDA's semantics on the simulator too: what is wrong there is wrong here first."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path

import numpy as np
import pytest

from dspark.kernels.arrays import DeviceArray
from dspark.kernels.errors import AllocatedUnderGraph, GraphError, LaunchError
from dspark.kernels.host_driver import HostDriver
from dspark.kernels.launch import Device
from dspark.kernels.signatures import kernels_in

SMALL = kernels_in(Path(__file__).parent / "cases")


@pytest.fixture
def device(compiled: Path) -> Device:
    device = Device(HostDriver(compiled), SMALL)
    for kernel in ("append_by_value", "append_from_memory", "advance"):
        device.kernel(kernel)
    return device


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


def test_a_number_is_baked_in(device: Device) -> None:
    """The mistake: a position passed by value stays where it was at the capture."""
    cache = device.array(ints(0, 0, 0, 0, 0), "i32")
    position, value = 1, 7

    with device.capture("round") as graph:
        device.kernel("append_by_value")(1, 32, [cache, 5, position, value])
    for _ in range(3):
        position, value = position + 1, value + 1
        graph.replay()

    assert [0, 7, 0, 0, 0] == device.read(cache).tolist()


def test_memory_is_read_anew(device: Device) -> None:
    """What to do instead: position and value lie on the device, and a kernel moves on."""
    cache, position = device.array(ints(0, 0, 0, 0, 0), "i32"), device.array(ints(1), "i32")
    value = device.array(ints(7), "i32")

    with device.capture("round") as graph:
        device.kernel("append_from_memory")(1, 32, [cache, position, value, 5])
        device.kernel("advance")(1, 32, [position])
    for number in (7, 8, 9):
        device.write(value, ints(number))
        graph.replay()

    assert [0, 7, 8, 9, 0] == device.read(cache).tolist()
    assert [4] == device.read(position).tolist()


def test_a_capture_runs_nothing(device: Device) -> None:
    position = device.array(ints(3), "i32")

    with device.capture("round") as graph:
        device.kernel("advance")(1, 32, [position])
        device.kernel("advance")(1, 32, [position])

    assert [3] == device.read(position).tolist()
    assert (0, 2) == (device.launches, graph.launches)
    graph.replay()
    assert [5] == device.read(position).tolist()
    assert 2 == device.launches


def test_nothing_is_allocated_until_the_graph_is_given_up(device: Device) -> None:
    position = device.array(ints(0), "i32")
    with device.capture("two rows") as graph:
        device.kernel("advance")(1, 32, [position])
        with pytest.raises(
            AllocatedUnderGraph, match=r"8 values of i32 .* graph `two rows` is in use"
        ):
            device.empty((2, 4), "i32")
    graph.replay()

    with pytest.raises(AllocatedUnderGraph, match="while the graph `two rows` is in use"):
        device.empty((1,), "i32")
    with pytest.raises(AllocatedUnderGraph):
        device.array(ints(1), "i32")
    with device.capture("one row") as other:
        device.kernel("advance")(1, 32, [position])
    graph.release()
    with pytest.raises(AllocatedUnderGraph, match="`one row`"):
        device.empty((1,), "i32")
    other.release()
    assert (1,) == device.empty((1,), "i32").shape


def test_a_graph_that_was_given_up_is_not_replayed(device: Device) -> None:
    position = device.array(ints(0), "i32")
    with device.capture("round") as graph:
        device.kernel("advance")(1, 32, [position])
        with pytest.raises(GraphError, match="`round` is not there to be replayed"):
            graph.replay()
    graph.release()

    with pytest.raises(GraphError, match="`round` is not there to be replayed"):
        graph.replay()
    assert [0] == device.read(position).tolist()


def advance_then_fail(device: Device, position: DeviceArray) -> None:
    device.kernel("advance")(1, 32, [position])
    device.kernel("advance")(1, 32, [])


def test_what_fails_in_a_capture_leaves_no_graph(device: Device) -> None:
    position = device.array(ints(0), "i32")

    with (
        pytest.raises(LaunchError, match="takes 1 arguments"),
        device.capture("round") as graph,
    ):
        advance_then_fail(device, position)

    with pytest.raises(GraphError, match="not there to be replayed"):
        graph.replay()
    # And the device is usable again.
    device.kernel("advance")(1, 32, [position])
    assert [1] == device.read(position).tolist()
    assert (1,) == device.empty((1,), "i32").shape


def test_a_capture_holds_launches_and_nothing_else(device: Device) -> None:
    position = device.array(ints(0), "i32")
    with device.capture("other") as other:
        device.kernel("advance")(1, 32, [position])

    with device.capture("round"):
        device.kernel("advance")(1, 32, [position])
        for what, act in (
            ("an array is read", lambda: device.read(position)),
            ("an array is written to", lambda: device.write(position, ints(1))),
            ("the device is waited for", device.synchronize),
            ("the graph `other` is replayed", other.replay),
            ("`scale` is loaded", lambda: device.kernel("scale")),
            ("the graph `inner` is captured", lambda: device.capture("inner").__enter__()),
        ):
            with pytest.raises(GraphError, match=f"{what} inside the capture of `round`"):
                act()
        with pytest.raises(GraphError, match="goes to the capture's own stream"):
            device.kernel("advance")(1, 32, [position], stream=object())


def test_a_graph_of_nothing_is_a_mistake(device: Device) -> None:
    with (
        pytest.raises(GraphError, match="`round` was captured without a launch"),
        device.capture("round"),
    ):
        pass
    assert (1,) == device.empty((1,), "i32").shape


def test_a_graph_keeps_its_arrays(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    # What CUDA records are addresses, which keep nothing alive.
    monkeypatch.setattr(HostDriver, "end_capture", lambda _: [])
    position = device.array(ints(0), "i32")
    watched = weakref.ref(position.handle)
    with device.capture("round") as graph:
        device.kernel("advance")(1, 32, [position])
    device.driver._recording = None  # type: ignore[attr-defined]
    del position
    gc.collect()

    assert watched() is not None
    graph.release()
    gc.collect()
    assert watched() is None
