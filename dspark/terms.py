"""What a plan is made for: a device, a format, how much is served, and how much memory there is."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from dspark.budget import DTYPES, parse_size, physical_memory

if TYPE_CHECKING:
    from dspark.load_plan import Device, Dtype


class Terms(NamedTuple):
    """What was asked for, in order.

    `max_seq` is None for as long as the target allows, `memory` where it is not known.
    """

    device: Device
    dtype: Dtype | None
    max_seq: int | None
    batch: int
    memory: int | None


def read_terms(
    device: Device,
    dtype: Dtype | None,
    max_seq: int | None,
    batch: int,
    memory: int | str | None,
) -> Terms:
    """The terms, with the machine's memory where none is named on a CPU.

    Raises ValueError for a value that means nothing.
    """
    available = _memory(memory, device)
    if device not in ("cuda", "cpu"):
        raise ValueError("`device` is `cuda` or `cpu`")
    if dtype is not None and dtype not in DTYPES:
        raise ValueError("`dtype` is `float32` or `bfloat16`")
    for name, number in (("max_seq", max_seq), ("batch", batch)):
        if number is not None and (type(number) is not int or number < 1):
            raise ValueError(f"`{name}` is a whole number of 1 or more")
    return Terms(device, dtype, max_seq, batch, available)


def _memory(memory: int | str | None, device: str) -> int | None:
    if memory is None:
        return physical_memory() if device == "cpu" else None
    size = parse_size(memory) if isinstance(memory, str) else memory
    if type(size) is not int or size < 1:
        raise ValueError("`memory` is a number of bytes of 1 or more")
    return size
