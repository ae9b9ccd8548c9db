"""bfloat16 on the host, where NumPy has no such type: 16 bits, the upper half of a float32."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Bits = npt.NDArray[np.uint16]


def to_bits(values: npt.ArrayLike) -> Bits:
    """`values` rounded to the nearest bfloat16, ties to even; NaN stays NaN."""
    wide = np.asarray(values, dtype=np.float32)
    bits = np.atleast_1d(wide).view(np.uint32)
    with np.errstate(over="ignore"):
        rounded = bits + (np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1)))
    # A NaN whose payload is all ones would be rounded over into zero.
    rounded = np.where(np.isnan(np.atleast_1d(wide)), np.uint32(0x7FC00000), rounded)
    out: Bits = (rounded >> np.uint32(16)).astype(np.uint16).reshape(wide.shape)
    return out


def from_bits(bits: npt.NDArray[np.uint16]) -> npt.NDArray[np.float32]:
    """The float32 that each bfloat16 is exactly."""
    wide: npt.NDArray[Any] = np.atleast_1d(bits).astype(np.uint32) << np.uint32(16)
    out: npt.NDArray[np.float32] = wide.view(np.float32).reshape(bits.shape)
    return out
