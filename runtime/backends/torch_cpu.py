"""PyTorch on the CPU, in float32 or bfloat16, such that a row's bits do not depend on its company.

Three things would break that, and each is ruled out here: matrix products that pick another kernel
for few rows (`CpuLinear` keeps to row counts it has measured to be safe), attention whose sums
depend on how long the longest context is (scores are taken page by page, in fixed shapes, and the
pages are added in order), and elementwise functions with another formula for the last few elements
(only those with one formula are used).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Literal

import torch

from dspark.runtime.backends.base import HostFloats, HostInts, KvStore, Reads
from dspark.runtime.backends.composed import ComposedOperations
from dspark.runtime.backends.rope import Rope, inverse_frequencies
from dspark.runtime.backends.torch_attention import AttentionGroup, attend_group, plan_groups
from dspark.runtime.backends.torch_linear import CpuLinear, prepare

Rotary = tuple[torch.Tensor, torch.Tensor]


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
        norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=torch.float32)
        per_square = 1.0 / x.shape[-1]
        scale = torch.addcmul(self._scalar(eps), norm, norm, value=per_square).rsqrt_()
        return (x * scale).to(x.dtype) * weight

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
        return (both.cos() * scale).to(self._dtype), sin.to(self._dtype)

    def rotary(self, table: Rotary, positions: Sequence[int]) -> Rotary:
        at = self.ids(positions)
        return table[0].index_select(0, at), table[1].index_select(0, at)

    def rotate(self, x: torch.Tensor, rotary: Rotary) -> torch.Tensor:
        # The sine carries the sign of the swapped half.
        cos, signed_sin = rotary
        return x * cos + x.roll(x.shape[-1] // 2, -1) * signed_sin

    def swiglu(self, gate_up: torch.Tensor) -> torch.Tensor:
        # torch's own silu takes the last elements of an array by another formula.
        gate, up = gate_up.chunk(2, dim=-1)
        return torch.div(gate, torch.neg(gate).exp_().add_(self._scalar(1.0))).mul_(up)

    def sigmoid(self, x: torch.Tensor) -> torch.Tensor:
        # Not torch's own, for the reason given in `swiglu`.
        return torch.neg(x).exp_().add_(1).reciprocal_()

    def tanh(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x)

    def kv_store(
        self, layers: int, pages: int, page_size: int, kv_heads: int, head_dim: int
    ) -> KvStore:
        def room() -> list[torch.Tensor]:
            shape = (pages, kv_heads, page_size, head_dim)
            return [torch.empty(shape, dtype=self._dtype) for _ in range(layers)]

        return KvStore(room(), room(), page_size)

    def slots(self, values: Sequence[int], store: KvStore) -> torch.Tensor:
        # Numbers of vectors in a store's tensor: each row has one in every head of its page.
        kv_heads, size = store.keys[0].shape[1], store.page_size
        return self.ids(
            [
                (slot // size * kv_heads + head) * size + slot % size
                for slot in values
                for head in range(kv_heads)
            ]
        )

    def write_kv(
        self, store: KvStore, layer: int, slots: torch.Tensor, k: torch.Tensor, v: torch.Tensor
    ) -> None:
        for kept, new in ((store.keys[layer], k), (store.values[layer], v)):
            width = kept.shape[-1]
            kept.view(-1, width).index_copy_(0, slots, new.reshape(-1, width))

    def attention_plan(
        self, reads: Sequence[Reads], store: KvStore, group: int
    ) -> list[AttentionGroup]:
        return plan_groups(reads, store.page_size, group)

    def attend(
        self, q: torch.Tensor, store: KvStore, layer: int, plan: list[AttentionGroup]
    ) -> torch.Tensor:
        keys, values = store.keys[layer], store.values[layer]
        if len(plan) == 1:
            return attend_group(q, keys, values, plan[0])
        out = torch.empty_like(q).flatten(1)
        for part in plan:
            out[part.rows] = attend_group(q, keys, values, part)
        return out

    def argmax(self, x: torch.Tensor) -> tuple[HostInts, HostFloats]:
        values, places = x.max(-1)
        ids: HostInts = places.numpy()
        return ids, self.host(values)
