"""The oracle: every operation in float64 NumPy, one row at a time, with nothing clever in it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from dspark.runtime.backends.base import Array, HostFloats, HostInts, KvStore, Reads
from dspark.runtime.backends.composed import ComposedOperations
from dspark.runtime.backends.rope import Rope, inverse_frequencies


class ReferenceBackend(ComposedOperations):
    """A `Backend` that is slow and obviously right; for tests, and for reading."""

    name = "reference"
    dtype = "float64"
    # Its matrix products are NumPy's, whose last bits depend on the number of rows.
    row_invariant = False

    def session(self) -> AbstractContextManager[object]:
        return nullcontext()

    def parameter(self, tensor: Any) -> Array:
        # A bfloat16 tensor has no NumPy form; it widens exactly.
        widened = tensor.double().numpy() if hasattr(tensor, "double") else tensor
        return np.array(widened, dtype=np.float64)

    def prepare_linear(self, weights: Sequence[Any], biases: Sequence[Any] | None = None) -> Array:
        matrix = np.concatenate([self.parameter(weight) for weight in weights])
        if biases is None:
            return matrix, None
        return matrix, np.concatenate([self.parameter(bias) for bias in biases])

    def ids(self, values: Sequence[int]) -> Array:
        return np.array(values, dtype=np.int64)

    def host(self, x: Array) -> HostFloats:
        return np.asarray(x, dtype=np.float32)

    def take(self, x: Array, rows: Sequence[int]) -> Array:
        return x[list(rows)]

    def concat(self, arrays: Sequence[Array]) -> Array:
        return np.concatenate(arrays, axis=-1)

    def embedding(self, ids: Array, table: Array) -> Array:
        return table[ids]

    def linear(self, x: Array, weight: Array) -> Array:
        matrix, bias = weight
        return x @ matrix.T if bias is None else x @ matrix.T + bias

    def rms_norm(self, x: Array, weight: Array, eps: float) -> Array:
        return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps) * weight

    def rope_table(self, rope: Rope, head_dim: int, length: int) -> Array:
        frequencies, scale = inverse_frequencies(rope, head_dim)
        angles = np.arange(length)[:, None] * frequencies[None, :]
        return np.cos(angles) * scale, np.sin(angles) * scale

    def rotary(self, table: Array, positions: Sequence[int]) -> Array:
        cos, sin = table
        return cos[list(positions)], sin[list(positions)]

    def rotate(self, x: Array, rotary: Array, out: Array | None = None) -> Array:
        cos, sin = rotary
        half = x.shape[-1] // 2
        left, right = x[..., :half], x[..., half:]
        cos, sin = cos[:, None, :], sin[:, None, :]
        turned = left * cos - right * sin, right * cos + left * sin
        return np.concatenate(turned, axis=-1, out=out)

    def swiglu(self, gate_up: Array) -> Array:
        half = gate_up.shape[-1] // 2
        gate = gate_up[..., :half]
        return gate * self.sigmoid(gate) * gate_up[..., half:]

    def sigmoid(self, x: Array) -> Array:
        return 1.0 / (1.0 + np.exp(-x))

    def tanh(self, x: Array) -> Array:
        return np.tanh(x)

    def kv_store(
        self, layers: int, pages: int, page_size: int, kv_heads: int, head_dim: int
    ) -> KvStore:
        # NaN, so that reading a slot nobody wrote cannot go unnoticed.
        def room() -> list[Array]:
            shape = (pages, kv_heads, page_size, head_dim)
            return [np.full(shape, np.nan) for _ in range(layers)]

        return KvStore(room(), room(), page_size)

    def slots(self, values: Sequence[int], store: KvStore) -> Array:
        return [divmod(slot, store.page_size) for slot in values]

    def write_kv(self, store: KvStore, layer: int, slots: Array, kv: Array) -> None:
        kv_heads = kv.shape[1] // 2
        for row, (page, place) in enumerate(slots):
            store.keys[layer][page, :, place] = kv[row, :kv_heads]
            store.values[layer][page, :, place] = kv[row, kv_heads:]

    def attention_plan(self, reads: Sequence[Reads], store: KvStore, group: int) -> Array:
        del store, group
        return [
            (request.pages, begin, end)
            for request in reads
            for begin, end in zip(request.begins, request.ends, strict=True)
        ]

    def attend(self, q: Array, store: KvStore, layer: int, plan: Array) -> Array:
        rows, heads, head_dim = q.shape
        group = heads // store.keys[layer].shape[1]
        out = np.empty((rows, heads, head_dim))
        for row, (pages, begin, end) in enumerate(plan):
            places = [divmod(position, store.page_size) for position in range(begin, end)]
            keys = np.stack([store.keys[layer][pages[page], :, at] for page, at in places])
            values = np.stack([store.values[layer][pages[page], :, at] for page, at in places])
            for head in range(heads):
                scores = keys[:, head // group] @ q[row, head] / np.sqrt(head_dim)
                weights = np.exp(scores - scores.max())
                out[row, head] = weights / weights.sum() @ values[:, head // group]
        return out.reshape(rows, heads * head_dim)

    def argmax(self, x: Array) -> tuple[HostInts, HostFloats]:
        places = np.argmax(x, axis=-1)
        return places, np.take_along_axis(x, places[:, None], -1)[:, 0].astype(np.float32)
