"""A launch held against the kernel's declaration: CUDA itself checks nothing of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from dspark.kernels.arrays import DeviceArray
from dspark.kernels.driver import STORAGE, Argument, Handle, Shape
from dspark.kernels.errors import LaunchError
from dspark.kernels.signatures import SIZES, Parameter, Signature

MOST_BLOCKS = (2**31 - 1, 65535, 65535)
MOST_THREADS = (1024, 1024, 64)
_VECTOR = 16
"""Kernels read arrays of weights, activations and rotations in vectors of this many bytes."""


def check_geometry(
    signature: Signature, grid: Shape, block: Shape, shared_bytes: int, most_shared: int
) -> None:
    """Returns if a device with `most_shared` bytes a block launches this. Raises `LaunchError`."""
    name = signature.name
    for what, given, most in (("grid", grid, MOST_BLOCKS), ("block", block, MOST_THREADS)):
        for size, limit in zip(given, most, strict=True):
            if not 1 <= size <= limit:
                raise LaunchError(f"the {what} of `{name}` is {given}, beyond 1 to {most}")
    if prod(block) > signature.threads or prod(block) % 32:
        raise LaunchError(
            f"a block of `{name}` has {prod(block)} threads; it takes whole warps, up to"
            f" {signature.threads} threads"
        )
    if not 0 <= shared_bytes <= most_shared:
        raise LaunchError(
            f"`{name}` asks for {shared_bytes} bytes of shared memory, beyond 0 to {most_shared}"
        )


def check_arguments(
    signature: Signature, args: Sequence[object], address: Callable[[Handle], int]
) -> tuple[list[DeviceArray], list[Argument]]:
    """The arrays among `args`, and what a driver hands on for each of `args`.

    Raises:
        LaunchError: an argument is missing, too many, of another kind or type, out of a number's
            range, smaller than the kernel expects, or not aligned.
    """
    parameters = signature.parameters
    if len(args) != len(parameters):
        names = ", ".join(each.name for each in parameters)
        raise LaunchError(
            f"`{signature.name}` takes {len(parameters)} arguments ({names}), not {len(args)}"
        )
    numbers: dict[str, int] = {}
    arrays: list[DeviceArray] = []
    packed: list[Argument] = []
    for parameter, given in zip(parameters, args, strict=True):
        where = f"argument `{parameter.name}` of `{signature.name}`"
        if parameter.shape is not None:
            array = _array(where, parameter, given)
            arrays.append(array)
            packed.append(array.handle)
        else:
            packed.append(_number(where, parameter, given))
            if isinstance(given, int):
                numbers[parameter.name] = given
    for parameter, given in zip(parameters, args, strict=True):
        if isinstance(given, DeviceArray):
            where = f"argument `{parameter.name}` of `{signature.name}`"
            _check_memory(where, parameter, given, numbers, address(given.handle))
    return arrays, packed


def _array(where: str, parameter: Parameter, given: object) -> DeviceArray:
    if not isinstance(given, DeviceArray):
        raise LaunchError(f"{where} is an array of {parameter.dtype}, not {_shown(given)}")
    if given.dtype != parameter.dtype:
        raise LaunchError(f"{where} is an array of {parameter.dtype}, not of {given.dtype}")
    return given


def _check_memory(
    where: str, parameter: Parameter, array: DeviceArray, numbers: dict[str, int], address: int
) -> None:
    wanted = parameter.values_in(numbers)
    if not 0 <= wanted <= array.size:
        raise LaunchError(f"{where} has {array.size} values, and the kernel uses {wanted}")
    aligned = _VECTOR if parameter.dtype in ("bf16", "fp8", "f32") else SIZES[parameter.dtype]
    if array.size and address % aligned:
        raise LaunchError(f"{where} does not begin at a multiple of {aligned} bytes")


def _number(where: str, parameter: Parameter, given: object) -> Any:
    kind = np.dtype(STORAGE[parameter.dtype])
    if kind.kind == "f":
        if not isinstance(given, float):
            raise LaunchError(f"{where} is a {parameter.dtype}, not {_shown(given)}")
        return np.asarray(given, kind)[()]
    if not isinstance(given, int) or isinstance(given, bool):
        raise LaunchError(f"{where} is an {parameter.dtype}, not {_shown(given)}")
    limits = np.iinfo(kind)
    if not limits.min <= given <= limits.max:
        raise LaunchError(f"{where} is an {parameter.dtype}, which cannot hold {given}")
    return np.asarray(given, kind)[()]


def _shown(given: object) -> str:
    if isinstance(given, DeviceArray):
        return f"an array of {given.dtype}"
    return "nothing" if given is None else f"`{given!r}`"
