"""Launches are held against the kernel's source, whatever runs them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dspark.kernels import bf16
from dspark.kernels.driver import STORAGE
from dspark.kernels.errors import LaunchError
from dspark.kernels.host_driver import HostDriver
from dspark.kernels.launch import Device
from dspark.kernels.signatures import SIZES, kernels_in

SMALL = kernels_in(Path(__file__).parent / "cases")


@pytest.fixture
def device(compiled: Path) -> Device:
    return Device(HostDriver(compiled), SMALL)


def scaled(device: Device, **changes: Any) -> Any:
    """Launches `scale` with what it takes, save for `changes`."""
    arrays = {
        "x": device.array(bf16.to_bits(np.arange(6).reshape(2, 3)), "bf16"),
        "out": device.empty((2, 3), "f32"),
    }
    given = arrays | {"rows": 2, "width": 3, "factor": 0.5} | changes
    where = {"grid": given.pop("grid", 1), "block": given.pop("block", 32)}
    smem = given.pop("smem", 0)
    device.kernel("scale")(*where.values(), list(given.values()), smem)
    return device.read(given["out"])


def test_a_launch_that_is_right(device: Device) -> None:
    assert [[0.0, 0.5, 1.0], [1.5, 2.0, 2.5]] == scaled(device).tolist()
    assert 1 == device.launches


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"factor": 1}, "argument `factor` of `scale` is a f32, not `1`"),
        ({"factor": True}, "argument `factor` of `scale` is a f32, not `True`"),
        ({"rows": 2.0}, "argument `rows` of `scale` is an i32, not `2.0`"),
        ({"rows": True}, "argument `rows` of `scale` is an i32, not `True`"),
        ({"rows": np.int64(2)}, "argument `rows` of `scale` is an i32, not"),
        ({"rows": None}, "argument `rows` of `scale` is an i32, not nothing"),
        ({"width": 2**31}, "argument `width` of `scale` is an i32, which cannot hold 2147483648"),
        ({"width": -(2**31) - 1}, "is an i32, which cannot hold -2147483649"),
        ({"x": 4096}, "argument `x` of `scale` is an array of bf16, not `4096`"),
        ({"x": None}, "argument `x` of `scale` is an array of bf16, not nothing"),
        ({"rows": 3}, "argument `x` of `scale` has 6 values, and the kernel uses 9"),
        ({"rows": -1}, "argument `x` of `scale` has 6 values, and the kernel uses -3"),
        (
            {"block": 96},
            "a block of `scale` has 96 threads; it takes whole warps, up to 64 threads",
        ),
        ({"block": 33}, "a block of `scale` has 33 threads; it takes whole warps"),
        ({"block": (32, 2, 2)}, "a block of `scale` has 128 threads"),
        ({"block": (1, 1, 96)}, "the block of `scale` is (1, 1, 96), beyond 1 to (1024, 1024, 64)"),
        ({"grid": 0}, "the grid of `scale` is (0, 1, 1), beyond 1 to"),
        ({"grid": (1, 65536)}, "the grid of `scale` is (1, 65536, 1), beyond 1 to"),
        ({"grid": ()}, "`scale` is launched with 0 dimensions; there are up to 3"),
        ({"grid": (1, 1, 1, 1)}, "`scale` is launched with 4 dimensions"),
        ({"smem": -1}, "`scale` asks for -1 bytes of shared memory, beyond 0 to 232448"),
        ({"smem": 232449}, "`scale` asks for 232449 bytes of shared memory"),
    ],
)
def test_a_launch_that_is_not(device: Device, changes: dict[str, Any], says: str) -> None:
    with pytest.raises(LaunchError) as caught:
        scaled(device, **changes)

    assert says in str(caught.value)
    assert 0 == device.launches == len(device.driver.reports)  # type: ignore[attr-defined]


def test_an_array_of_another_type_is_not_taken(device: Device) -> None:
    with pytest.raises(
        LaunchError, match="argument `out` of `scale` is an array of f32, not of i32"
    ):
        scaled(device, out=device.empty((2, 3), "i32"))
    with pytest.raises(
        LaunchError, match="argument `rows` of `scale` is an i32, not an array of i32"
    ):
        scaled(device, rows=device.empty((1,), "i32"))


def test_arguments_are_counted(device: Device) -> None:
    with pytest.raises(
        LaunchError, match=r"takes 5 arguments \(x, out, rows, width, factor\), not 4"
    ):
        device.kernel("scale")(1, 32, [device.empty((8,), "bf16")] * 4)
    with pytest.raises(LaunchError, match=r"takes 5 arguments .*, not 6"):
        scaled(device, more=1)


def test_a_vector_is_read_from_where_vectors_begin(device: Device) -> None:
    whole = device.array(bf16.to_bits(np.arange(24)), "bf16")

    with pytest.raises(
        LaunchError, match="argument `x` of `scale` does not begin at a multiple of 16"
    ):
        scaled(device, x=whole.rows(1, 24))
    assert [[4.0, 4.5, 5.0], [5.5, 6.0, 6.5]] == scaled(device, x=whole.rows(8, 24)).tolist()


def test_an_array_may_be_larger_than_what_is_used(device: Device) -> None:
    whole = device.array(bf16.to_bits(np.arange(24)), "bf16")

    assert [[0.0, 0.5, 1.0], [1.5, 2.0, 2.5]] == scaled(device, x=whole.reshape(4, 6)).tolist()


def test_whole_numbers_keep_their_width(device: Device) -> None:
    out = device.empty((2,), "i64")

    device.kernel("wide")(1, 32, [out, -(2**63), 2**64 - 1])

    assert [-(2**63), -1] == device.read(out).tolist()
    with pytest.raises(LaunchError, match="argument `b` of `wide` is an u64, which cannot hold -1"):
        device.kernel("wide")(1, 32, [out, 0, -1])


def test_there_is_no_other_kernel(device: Device) -> None:
    with pytest.raises(LaunchError, match="there is no kernel `scales`"):
        device.kernel("scales")


def test_content_is_of_the_arrays_own_shape_and_type(device: Device) -> None:
    array = device.empty((2, 3), "bf16")

    with pytest.raises(LaunchError, match=r"bf16 \[2, 3\] cannot take float32 \[2, 3\]"):
        device.write(array, np.zeros((2, 3), np.float32))
    with pytest.raises(LaunchError, match=r"bf16 \[2, 3\] cannot take uint16 \[6\]"):
        device.write(array, np.zeros(6, np.uint16))


def test_every_type_has_its_storage() -> None:
    assert {name: np.dtype(kind).itemsize for name, kind in STORAGE.items()} == SIZES
