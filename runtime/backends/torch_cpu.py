"""PyTorch on the CPU, in float32 or bfloat16, such that a row's bits do not depend on its company.

Three things would break that, and each is ruled out here: matrix products that pick another kernel
for few rows (`CpuLinear` keeps to row counts it has measured to be safe), attention whose sums
depend on how long the longest context is (a row is computed over the blocks that it sees itself),
and elementwise functions with another formula for the last few elements (`silu` sees to it that
these are the same for every row; the others have one formula).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Literal

import numpy as np
import torch

from dspark.runtime.backends.base import HostFloats, HostInts, KvStore, Reads
from dspark.runtime.backends.composed import ComposedOperations
from dspark.runtime.backends.rope import Rope, inverse_frequencies
from dspark.runtime.backends.torch_attention import (
    CpuKvStore,
    Slots,
    Stretch,
    attend_stretches,
    new_store,
    plan_slots,
    plan_stretches,
    write,
)
from dspark.runtime.backends.torch_attention_format import reading_format
from dspark.runtime.backends.torch_linear import CpuLinear, prepare

Rotary = tuple[torch.Tensor, torch.Tensor]

# Arrays of fewer elements torch does not spread over threads (`at::internal::GRAIN_SIZE`).
_ONE_THREAD = 32_768


class TorchCpuBackend(ComposedOperations):
    """A `Backend` on the CPU.

    `linears` picks how weights are held: `packed` for oneDNN's own layout, which makes eight rows
    cost about as much as one; `plain` for `torch.nn.functional.linear`, which any torch has;
    `best` for the first where this torch offers it.
    """

    name = "torch-cpu"
    row_invariant = True

    def __init__(
        self,
        dtype: Literal["float32", "bfloat16"] = "float32",
        linears: Literal["best", "packed", "plain"] = "best",
    ) -> None:
        self.dtype: str = dtype
        self._dtype = {"float32": torch.float32, "bfloat16": torch.bfloat16}[dtype]
        self._linears = linears
        self._scalars: dict[float, torch.Tensor] = {}

    def session(self) -> AbstractContextManager[object]:
        return torch.inference_mode()

    def parameter(self, tensor: Any) -> torch.Tensor:
        # A copy: what is handed over may be a mapped file, which somebody will overwrite one day.
        return torch.as_tensor(tensor).detach().to(self._dtype, copy=True).contiguous()

    def prepare_linear(
        self, weights: Sequence[Any], biases: Sequence[Any] | None = None
    ) -> CpuLinear:
        def joined(parts: Sequence[Any]) -> torch.Tensor:
            return torch.cat([torch.as_tensor(part).detach().to(self._dtype) for part in parts])

        return prepare(joined(weights), None if biases is None else joined(biases), self._linears)

    def ids(self, values: Sequence[int]) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.int64)

    def host(self, x: torch.Tensor) -> HostFloats:
        array: HostFloats = x.float().numpy()
        return array

    def take(self, x: torch.Tensor, rows: Sequence[int]) -> torch.Tensor:
        return x.index_select(0, self.ids(rows))

    def concat(self, arrays: Sequence[torch.Tensor]) -> torch.Tensor:
        return torch.cat(list(arrays), dim=-1)

    def embedding(self, ids: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
        return table.index_select(0, ids)

    def linear(self, x: torch.Tensor, weight: CpuLinear) -> torch.Tensor:
        return weight(x)

    def rms_norm(self, x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        wide = x.float()
        norm = torch.linalg.vector_norm(wide, dim=-1, keepdim=True)
        per_square = 1.0 / x.shape[-1]
        scale = torch.addcmul(self._scalar(eps), norm, norm, value=per_square).rsqrt_()
        quotient = wide * scale if wide is x else wide.mul_(scale).to(weight.dtype)
        return quotient.mul_(weight)

    def _scalar(self, value: float) -> torch.Tensor:
        # Kept as a tensor: making one of a Python number costs as much as the operation on it.
        if value not in self._scalars:
            self._scalars[value] = torch.tensor(value)
        return self._scalars[value]

    def rope_table(self, rope: Rope, head_dim: int, length: int) -> Rotary:
        # float32 angles, as the models were trained with; a table, so that no row's cosine can
        # depend on the rows beside it.
        frequencies, scale = inverse_frequencies(rope, head_dim)
        per_position = torch.from_numpy(frequencies).float()
        angles = torch.arange(length).float()[:, None] * per_position[None, :]
        both = torch.cat([angles, angles], dim=-1)[:, None, :]
        sin = both.sin() * scale
        sin[..., : head_dim // 2] *= -1
        return both.cos() * scale, sin

    def rotary(self, table: Rotary, positions: Sequence[int]) -> Rotary:
        at = self.ids(positions)
        return table[0].index_select(0, at), table[1].index_select(0, at)

    def rotate(
        self, x: torch.Tensor, rotary: Rotary, out: torch.Tensor | None = None
    ) -> torch.Tensor:
        # The sine carries the sign of the swapped half.
        cos, signed_sin = rotary
        return torch.addcmul(x * cos, x.roll(x.shape[-1] // 2, -1), signed_sin, out=out)

    def prepare_head_norms(
        self, query: torch.Tensor, key: torch.Tensor, heads: int, kv_heads: int
    ) -> torch.Tensor:
        if heads:
            # Measured while loading, so that no request waits for it.
            self._reading(kv_heads, heads // kv_heads, len(query))
        # float32, and so are the rotations: a head is rounded once, and is cast less often.
        norms: torch.Tensor = super().prepare_head_norms(query, key, heads, kv_heads)
        return norms.float()

    def _reading(self, kv_heads: int, group: int, head_dim: int) -> torch.dtype:
        return reading_format(self._dtype, kv_heads, group, head_dim, torch.get_num_threads())

    def linear_add(self, x: torch.Tensor, weight: CpuLinear, stream: torch.Tensor) -> torch.Tensor:
        return weight(x).add_(stream)

    def swiglu(self, gate_up: torch.Tensor) -> torch.Tensor:
        gate, up = gate_up.chunk(2, dim=-1)
        return silu(gate).mul_(up)

    def sigmoid(self, x: torch.Tensor) -> torch.Tensor:
        # Not torch's own, for the reason given in `silu`.
        return torch.neg(x).exp_().add_(1).reciprocal_()

    def tanh(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x)

    def kv_store(
        self, layers: int, pages: int, page_size: int, kv_heads: int, head_dim: int
    ) -> CpuKvStore:
        return new_store(layers, pages, page_size, kv_heads, head_dim, self._dtype)

    def slots(self, values: Sequence[int], store: KvStore) -> Slots:
        return plan_slots(values, store.page_size)

    def write_kv(self, store: KvStore, layer: int, slots: Slots, kv: torch.Tensor) -> None:
        write(_ours(store), layer, slots, kv)

    def attention_plan(self, reads: Sequence[Reads], store: KvStore, group: int) -> list[Stretch]:
        head_dim = store.keys[0].shape[-1]
        return plan_stretches(reads, store.page_size, group, head_dim)

    def attend(
        self, q: torch.Tensor, store: KvStore, layer: int, plan: list[Stretch]
    ) -> torch.Tensor:
        _, kv_heads, _, head_dim = store.keys[layer].shape
        both = _ours(store).both[layer]
        reading = self._reading(kv_heads, q.shape[1] // kv_heads, head_dim)
        mixed = attend_stretches(q, both, store.page_size, kv_heads, plan, reading)
        return mixed.to(both.dtype)

    def argmax(self, x: torch.Tensor) -> tuple[HostInts, HostFloats]:
        # NumPy's is several times as fast as torch's along a large vocabulary.
        host = self.host(x)
        ids: HostInts = host.argmax(-1)
        return ids, host[np.arange(len(ids)), ids]


def silu(x: torch.Tensor) -> torch.Tensor:
    """`x` [R, N] times its sigmoid."""
    # torch takes the last elements of a stretch by another formula. A stretch is a row, unless the
    # array is so large that threads share it: where they cut depends on the number of rows.
    rows = max(1, (_ONE_THREAD - 1) // x.shape[1])
    if len(x) <= rows:
        return torch.nn.functional.silu(x)
    return torch.cat([torch.nn.functional.silu(part) for part in torch.split(x, rows)])


def _ours(store: KvStore) -> CpuKvStore:
    # INVARIANT: a backend is given the stores that it made.
    assert isinstance(store, CpuKvStore)
    return store
