"""Rotary position embeddings: how far each pair of a head turns per position, plain and YaRN."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True, kw_only=True)
class Rope:
    """A model's `rope_parameters`, in canonical form.

    The fields after `theta` matter to `yarn` only. `attention_factor` is what cosine and sine are
    multiplied by; when absent it follows from `factor`, or from `mscale` and `mscale_all_dim`.
    """

    theta: float
    kind: Literal["default", "yarn"] = "default"
    factor: float = 1.0
    original_max_position_embeddings: int = 0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    attention_factor: float | None = None
    mscale: float | None = None
    mscale_all_dim: float | None = None
    truncate: bool = True

    def __post_init__(self) -> None:
        if self.kind == "yarn" and self.original_max_position_embeddings < 1:
            raise ValueError("`yarn` needs `original_max_position_embeddings`")


def inverse_frequencies(rope: Rope, head_dim: int) -> tuple[npt.NDArray[np.float64], float]:
    """Radians per position of each of the `head_dim` / 2 pairs; the scale of cosine and sine."""
    plain = rope.theta ** (-np.arange(0, head_dim, 2, dtype=np.float64) / head_dim)
    if rope.kind == "default":
        return plain, 1.0
    low = _pair_that_turns(rope.beta_fast, rope, head_dim)
    high = _pair_that_turns(rope.beta_slow, rope, head_dim)
    if rope.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, head_dim - 1)
    if low == high:
        high += 0.001
    stretched = np.clip((np.arange(head_dim // 2) - low) / (high - low), 0.0, 1.0)
    return plain / rope.factor * stretched + plain * (1.0 - stretched), _yarn_scale(rope)


def _pair_that_turns(turns: float, rope: Rope, head_dim: int) -> float:
    """The pair that makes this many turns over the length the model was trained on."""
    per_turn = rope.original_max_position_embeddings / (turns * 2 * math.pi)
    return head_dim * math.log(per_turn) / (2 * math.log(rope.theta))


def _yarn_scale(rope: Rope) -> float:
    if rope.attention_factor is not None:
        return rope.attention_factor

    def scale(mscale: float) -> float:
        return 1.0 if rope.factor <= 1 else 0.1 * mscale * math.log(rope.factor) + 1.0

    if rope.mscale and rope.mscale_all_dim:
        return scale(rope.mscale) / scale(rope.mscale_all_dim)
    return scale(1.0)
