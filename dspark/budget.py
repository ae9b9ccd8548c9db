"""How much memory a pair needs, in bytes, before any of it is allocated.

Weights are kept in the format of their file on a GPU, and widened to float32 on a CPU, unless a
format is asked for; keys and values are in the format of the weights. Counted are the weights, both
caches for `max_seq` positions of every row, and the logits with one workspace of their size for a
round. Activations of a prefill and what the libraries themselves take are not.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from math import prod
from typing import NamedTuple

from dspark.contract import Value
from dspark.headers import TensorInfo
from dspark.match_tensors import integer

_FLOAT32, _BFLOAT16 = 4, 2
_CONFIG_DTYPES = {"bfloat16": _BFLOAT16, "float16": 2, "float32": _FLOAT32}
DTYPES = {"float32": _FLOAT32, "bfloat16": _BFLOAT16}
"""What can be computed in, and the bytes of a value."""
_UNITS: dict[str, int] = {
    unit: base**power
    for base, letters in ((1000, ("", "K", "M", "G", "T")), (1024, ("", "Ki", "Mi", "Gi", "Ti")))
    for power, letter in enumerate(letters)
    for unit in (letter.lower(), f"{letter}B".lower())
}
_SIZE = re.compile(r"([0-9]{1,18})(?:\.([0-9]{1,9}))? ?([A-Za-z]{0,3})")


class Stored(NamedTuple):
    """The weights of one model on a device."""

    weights: int
    value_bytes: int
    """Bytes of one key or value in its cache."""


class Budget(NamedTuple):
    """Bytes, and what they were computed from."""

    draft_weights: int
    target_weights: int
    draft_kv_per_token: int
    target_kv_per_token: int
    draft_kv: int
    target_kv: int
    logits: int
    batch: int
    draft_positions: int

    @property
    def total(self) -> int:
        caches = self.draft_kv + self.target_kv
        return self.draft_weights + self.target_weights + caches + self.logits

    def longest_within(self, memory: int) -> int:
        """The longest `max_seq` whose total is at most `memory`; 0 if there is none."""
        weights = self.draft_weights + self.target_weights
        left = max(0, memory - weights - self.logits) // self.batch
        both = left // (self.draft_kv_per_token + self.target_kv_per_token)
        if both <= self.draft_positions:
            return both
        left -= self.draft_kv_per_token * self.draft_positions
        return left // self.target_kv_per_token


def stored(tensors: Iterable[TensorInfo], device: str, dtype: str | None = None) -> Stored:
    """What tensors of a file take on `device`; the cache follows the format most bytes are in.

    `dtype` is what everything is converted to; None leaves it to the device.
    """
    infos = list(tensors)
    size = _value_bytes(device, dtype)
    if size is not None:
        return Stored(sum(_converted(info, size) for info in infos), size)
    by_dtype: Counter[str] = Counter()
    for info in infos:
        by_dtype[info.dtype] += info.nbytes
    is_float32 = by_dtype["F32"] > by_dtype["BF16"]
    return Stored(sum(by_dtype.values()), _FLOAT32 if is_float32 else _BFLOAT16)


def stored_by_config(
    shapes: Iterable[tuple[int, ...]],
    config: Mapping[str, object],
    device: str,
    dtype: str | None = None,
) -> Stored:
    """The same for a model whose weights are not there.

    The config's `dtype` (or `torch_dtype`) tells their format; without one they are taken to be
    float32, so that what fits by this figure fits.
    """
    named = config.get("dtype") or config.get("torch_dtype")
    size = _value_bytes(device, dtype)
    if size is None:
        size = _CONFIG_DTYPES.get(named, _FLOAT32) if isinstance(named, str) else _FLOAT32
    return Stored(size * sum(prod(shape) for shape in shapes), size)


NO_DRAFT = Stored(0, 0)


def budget(
    draft: Mapping[str, Value] | None,
    target: Mapping[str, Value],
    *,
    draft_stored: Stored = NO_DRAFT,
    target_stored: Stored,
    drafts: int,
    draft_positions: int,
    max_seq: int,
    batch: int,
) -> Budget:
    """The bytes of a pair that serves `batch` rows of up to `max_seq` tokens, `drafts` a round.

    `draft_positions` is how far the draft is asked, at most `max_seq`. A target without a draft has
    neither, nor drafts.
    """
    draft_kv = 0 if draft is None else _kv_per_token(draft, draft_stored.value_bytes)
    target_kv = _kv_per_token(target, target_stored.value_bytes)
    return Budget(
        draft_weights=draft_stored.weights,
        target_weights=target_stored.weights,
        draft_kv_per_token=draft_kv,
        target_kv_per_token=target_kv,
        draft_kv=draft_kv * draft_positions * batch,
        target_kv=target_kv * max_seq * batch,
        logits=(drafts + 1) * integer(target, "vocab_size") * _FLOAT32 * 2 * batch,
        batch=batch,
        draft_positions=draft_positions,
    )


def physical_memory() -> int:
    """Bytes of memory this machine has."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def parse_size(text: str) -> int:
    """`24GiB`, `24 GB`, `1.5TiB` or a number of bytes, in bytes. Raises ValueError."""
    match = _SIZE.fullmatch(text.strip())
    if match is None or match[3].lower() not in _UNITS:
        raise ValueError("a size is a number of bytes, or one with a unit such as 24GiB")
    unit, fraction = _UNITS[match[3].lower()], match[2] or ""
    digits = int(match[1] + fraction)
    return digits * unit // int(10 ** len(fraction))


def shown_size(count: int) -> str:
    """Bytes as people read them: `23.10 GiB`, and small numbers in full."""
    for unit, size in (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= size:
            return f"{count / size:.2f} {unit}"
    return f"{count} B"


def _kv_per_token(values: Mapping[str, Value], value_bytes: int) -> int:
    layers, heads = integer(values, "num_hidden_layers"), integer(values, "num_key_value_heads")
    return layers * 2 * heads * integer(values, "head_dim") * value_bytes


def _value_bytes(device: str, dtype: str | None) -> int | None:
    """Bytes of a value where all are converted to one format; None where files keep theirs."""
    if dtype is not None:
        return DTYPES[dtype]
    return _FLOAT32 if device == "cpu" else None


def _converted(info: TensorInfo, size: int) -> int:
    return info.nbytes if info.dtype == "I64" else prod(info.shape) * size
