"""Our kernels on a GPU, or on the simulator: bfloat16 values, float32 sums.

Each operation is one launch, or one for every 16 rows; arrays are `DeviceArray`s. What is returned
lies in memory that the next pass uses again. A row's bits do not depend on its company as long as
there are fewer than `cuda_products.WIDE` rows; longer pieces of a prompt go through torch's
products, whose sums are taken in an order that depends on how many rows there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np

from dspark.kernel_sizes import MOST_ROUND_ROWS
from dspark.kernels import bf16
from dspark.kernels.arrays import DeviceArray
from dspark.kernels.gemm_geometry import MOST_ROWS
from dspark.kernels.launch import Device
from dspark.kernels.shared_memory import norm_bytes
from dspark.runtime.backends.base import HostFloats, HostInts, KvStore, Reads
from dspark.runtime.backends.cuda_attention import Run, attend, plan_runs
from dspark.runtime.backends.cuda_products import CudaLinear, Products, launches_over
from dspark.runtime.backends.cuda_scratch import Scratch
from dspark.runtime.backends.rope import Rope, inverse_frequencies

SCRATCH_ROWS = MOST_ROUND_ROWS
"""Slots behind the pages of a store, for rows that only fill up a pass. Nothing reads them."""

_PLANS = 4
"""Plans that are in use at once, at the most: one for each window of a pass, and some to spare."""


@dataclass(frozen=True, slots=True)
class HeadNorms:
    """The two weights [d] that a layer's query and key heads share, and how many these are."""

    query: DeviceArray
    key: DeviceArray
    heads: int
    kv_heads: int


@dataclass(frozen=True, slots=True)
class Rotary:
    """Rotations of all positions, float32 [positions, d], and the rows' positions, int32 [R]."""

    table: DeviceArray
    at: DeviceArray


@dataclass(frozen=True, slots=True)
class Features:
    """Taps of R rows: for every 16 of them, [taps, rows, H]."""

    chunks: list[DeviceArray]
    shape: tuple[int, int]


class CudaBackend:
    """A `Backend` over the kernels of `device`.

    `scratch` is where results lie; `products` are those of rows and weights.
    """

    name = "cuda"
    dtype = "bfloat16"
    row_invariant = False
    rounds_on_device = True

    def __init__(self, device: Device) -> None:
        self.device = device
        self.scratch = Scratch(device)
        self.products = Products(device, self.scratch)
        self._plans = 0

    def session(self) -> AbstractContextManager[object]:
        return nullcontext()

    def parameter(self, tensor: Any) -> DeviceArray:
        return self.device.array(_bits(tensor), "bf16")

    def prepare_linear(
        self, weights: Sequence[Any], biases: Sequence[Any] | None = None
    ) -> CudaLinear:
        def joined(parts: Sequence[Any]) -> DeviceArray:
            return self.device.array(np.concatenate([_bits(part) for part in parts]), "bf16")

        return CudaLinear(joined(weights), None if biases is None else joined(biases))

    def prepare_head_norms(
        self, query: DeviceArray, key: DeviceArray, heads: int, kv_heads: int
    ) -> HeadNorms:
        return HeadNorms(query, key, heads, kv_heads)

    def ids(self, values: Sequence[int]) -> DeviceArray:
        return self.scratch.filled("ids", values)

    def host(self, x: DeviceArray) -> HostFloats:
        values = self.device.read(x)
        return bf16.from_bits(values) if x.dtype == "bf16" else values.astype(np.float32)

    def take(self, x: DeviceArray, rows: Sequence[int]) -> DeviceArray:
        return self.gather(x, self.scratch.filled("taken rows", rows), "taken")

    def embedding(self, ids: DeviceArray, table: DeviceArray) -> DeviceArray:
        return self.gather(table, ids, "stream")

    def gather(self, table: DeviceArray, ids: DeviceArray, name: str) -> DeviceArray:
        """The rows `ids` of `table` as the array `name`."""
        out = self.scratch.empty(name, (ids.size, table.shape[1]))
        self._gather(table, ids, out)
        return out

    def _gather(self, table: DeviceArray, ids: DeviceArray, out: DeviceArray) -> None:
        rows, width = out.shape
        arguments = table, ids, out, rows, table.shape[0], width
        self.device.kernel("gather_rows")(rows, _threads(width), arguments)

    def linear(self, x: DeviceArray, weight: CudaLinear) -> DeviceArray:
        return self.products.linear(x, weight)

    def linear_add(self, x: DeviceArray, weight: CudaLinear, stream: DeviceArray) -> DeviceArray:
        return self.products.add(x, weight, stream)

    def linear_swiglu(self, x: DeviceArray, weight: CudaLinear) -> DeviceArray:
        return self.products.swiglu(x, weight)

    def logits(self, x: DeviceArray, weight: CudaLinear) -> DeviceArray:
        return self.products.logits(x, weight)

    def rms_norm(self, x: DeviceArray, weight: DeviceArray, eps: float) -> DeviceArray:
        rows, width = x.shape
        out = self.scratch.empty("normed", x.shape)
        arguments = x, weight, out, rows, width, eps
        self.device.kernel("rms_norm")(rows, _threads(width), arguments, smem=norm_bytes(width))
        return out

    def rope_table(self, rope: Rope, head_dim: int, length: int) -> DeviceArray:
        # float32 angles, as the models were trained with.
        frequencies, scale = inverse_frequencies(rope, head_dim)
        angles = np.arange(length, dtype=np.float32)[:, None] * frequencies.astype(np.float32)
        both = np.concatenate([np.cos(angles), np.sin(angles)], axis=1) * np.float32(scale)
        return self.device.array(both.astype(np.float32), "f32")

    def rotary(self, table: DeviceArray, positions: Sequence[int]) -> Rotary:
        return Rotary(table, self.scratch.filled("positions", positions))

    def kv_store(
        self, layers: int, pages: int, page_size: int, kv_heads: int, head_dim: int
    ) -> KvStore:
        shape = pages + -(-SCRATCH_ROWS // page_size), kv_heads, page_size, head_dim

        # A second store, as of somebody who judges texts, may come while graphs are in use.
        self.scratch.release_graphs()

        def room() -> list[DeviceArray]:
            return [self.device.empty(shape, "bf16") for _ in range(layers)]

        return KvStore(room(), room(), page_size)

    def slots(self, values: Sequence[int], store: KvStore) -> DeviceArray:  # noqa: ARG002
        return self.scratch.filled("slots", values)

    def place_heads(
        self,
        x: DeviceArray,
        norms: HeadNorms,
        eps: float,
        rotary: Rotary,
        store: KvStore,
        layer: int,
        slots: DeviceArray,
    ) -> DeviceArray:
        rows, heads, kv_heads = x.shape[0], norms.heads, norms.kv_heads
        keys, values = store.keys[layer], store.values[layer]
        pages, _, page_size, head_dim = keys.shape
        q = self.scratch.empty("q", (rows, heads, head_dim))
        arguments = (
            *(x, q, norms.query, norms.key, rotary.table, rotary.at, slots, keys, values, rows),
            *(heads, kv_heads, rotary.table.shape[0], pages, page_size, eps),
        )
        blocks = -(-(heads + 2 * kv_heads) * 8 // 128)
        self.device.kernel(f"norm_rope_append_{head_dim}")((rows, blocks), 128, arguments)
        return q

    def attention_plan(self, reads: Sequence[Reads], store: KvStore, group: int) -> list[Run]:
        self._plans += 1
        kv_heads, head_dim = store.keys[0].shape[1], store.keys[0].shape[3]
        name = f"plan {self._plans % _PLANS}"
        return plan_runs(self.scratch, name, reads, store, group, group * kv_heads * head_dim)

    def attend(self, q: DeviceArray, store: KvStore, layer: int, plan: list[Run]) -> DeviceArray:
        return attend(self.device, self.scratch, q, store, layer, plan)

    def tap_room(self, taps: int, x: DeviceArray) -> Features:
        rows, width = x.shape
        whole = self.scratch.empty("features", (rows * taps * width,))
        chunks = [
            whole.rows(begin * taps * width, end * taps * width).reshape(taps, end - begin, width)
            for begin, end in launches_over(rows)
        ]
        return Features(chunks, (rows, taps * width))

    def tap(self, room: Features, number: int, x: DeviceArray) -> None:
        ids = self.scratch.filled("sixteen", range(MOST_ROWS))
        for chunk, (begin, end) in zip(room.chunks, launches_over(x.shape[0]), strict=True):
            out = chunk.rows(number, number + 1).reshape(end - begin, x.shape[1])
            self._gather(x.rows(begin, end), ids.rows(0, end - begin), out)

    def features(self, room: Features) -> Features:
        return room

    def linear_features(self, features: Features, weight: CudaLinear) -> DeviceArray:
        rows = features.shape[0]
        out = self.scratch.empty("product", (rows, weight.outputs))
        for chunk, (begin, end) in zip(features.chunks, launches_over(rows), strict=True):
            self.products.panels(chunk, out.rows(begin, end), weight)
        return out

    def argmax(self, x: DeviceArray) -> tuple[HostInts, HostFloats]:
        values = self.host(x)
        places: HostInts = values.argmax(-1)
        return places, np.take_along_axis(values, places[:, None], -1)[:, 0]


def _bits(tensor: Any) -> Any:
    """A tensor of torch or NumPy as bf16 holds it."""
    if not hasattr(tensor, "detach"):
        return bf16.to_bits(tensor)
    import torch

    return tensor.detach().to(torch.bfloat16).contiguous().view(torch.uint16).cpu().numpy()


def _threads(width: int) -> int:
    """Whole warps, one vector of eight values a thread, up to what the kernels take."""
    return min(256, -(-width // 256) * 32)
