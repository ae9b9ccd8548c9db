"""Writers of safetensors files: sound ones through the library, all others byte by byte."""

from __future__ import annotations

import json
from math import prod
from typing import TYPE_CHECKING

import numpy as np
from safetensors.numpy import load_file, save_file

from dspark.headers import DTYPE_BITS

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

INDEX = "model.safetensors.index.json"


def encoded(header: object, data: bytes = b"") -> bytes:
    """A file with exactly this header: JSON text or bytes as they are, anything else dumped."""
    if isinstance(header, str):
        header = header.encode("utf-8")
    elif not isinstance(header, bytes):
        header = json.dumps(header).encode("utf-8")
    return len(header).to_bytes(8, "little") + header + data


def entry(dtype: str, shape: list[int], begin: int, end: int) -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def declared(shapes: Mapping[str, tuple[int, ...]], dtype: str = "BF16") -> dict[str, object]:
    """A sound header that lays the tensors out one after another."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    position = 0
    for name, shape in shapes.items():
        end = position + prod(shape) * DTYPE_BITS[dtype] // 8
        header[name] = entry(dtype, list(shape), position, end)
        position = end
    return header


def write(
    path: Path, arrays: Mapping[str, np.ndarray], metadata: dict[str, str] | None = None
) -> None:
    """A file by the library, read back: it writes an array that is not contiguous permuted."""
    contiguous = {
        # `ascontiguousarray` would make a vector of a scalar.
        name: np.ascontiguousarray(array).reshape(array.shape)
        for name, array in arrays.items()
    }
    save_file(contiguous, path, metadata)
    written = load_file(path)
    assert written.keys() == arrays.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(written[name], array)
        assert written[name].shape == array.shape


def write_sparse(path: Path, shapes: Mapping[str, tuple[int, ...]], dtype: str = "BF16") -> int:
    """A file of its true size whose data is a hole; returns that size."""
    head = encoded(declared(shapes, dtype))
    size = len(head) + sum(prod(shape) * DTYPE_BITS[dtype] // 8 for shape in shapes.values())
    with path.open("wb") as file:
        file.write(head)
        file.truncate(size)
    return size


def write_index(folder: Path, weight_map: object, name: str = INDEX) -> None:
    content = {"metadata": {"total_size": 1}, "weight_map": weight_map}
    (folder / name).write_text(json.dumps(content))


def write_shards(folder: Path, shards: Mapping[str, Mapping[str, np.ndarray]]) -> None:
    """Sound shards and the index that belongs to them."""
    for file, arrays in shards.items():
        write(folder / file, arrays)
    write_index(folder, {name: file for file, arrays in shards.items() for name in arrays})


def draft_shapes(
    layers: int,
    hidden: int,
    intermediate: int,
    heads: int,
    kv_heads: int,
    head_dim: int,
    vocab: int,
) -> dict[str, tuple[int, ...]]:
    """The tensors of a flat DSpark draft with as many taps as layers and Markov rank 256."""
    shapes: dict[str, tuple[int, ...]] = {
        "embed_tokens.weight": (vocab, hidden),
        "lm_head.weight": (vocab, hidden),
        "fc.weight": (hidden, hidden * layers),
        "hidden_norm.weight": (hidden,),
        "norm.weight": (hidden,),
        "markov_head.markov_w1.weight": (vocab, 256),
        "markov_head.markov_w2.weight": (vocab, 256),
        "confidence_head.proj.weight": (1, hidden + 256),
        "confidence_head.proj.bias": (1,),
    }
    for layer in range(layers):
        prefix = f"layers.{layer}."
        shapes |= {
            prefix + "input_layernorm.weight": (hidden,),
            prefix + "post_attention_layernorm.weight": (hidden,),
            prefix + "self_attn.q_proj.weight": (heads * head_dim, hidden),
            prefix + "self_attn.k_proj.weight": (kv_heads * head_dim, hidden),
            prefix + "self_attn.v_proj.weight": (kv_heads * head_dim, hidden),
            prefix + "self_attn.o_proj.weight": (hidden, heads * head_dim),
            prefix + "self_attn.q_norm.weight": (head_dim,),
            prefix + "self_attn.k_norm.weight": (head_dim,),
            prefix + "mlp.gate_proj.weight": (intermediate, hidden),
            prefix + "mlp.up_proj.weight": (intermediate, hidden),
            prefix + "mlp.down_proj.weight": (hidden, intermediate),
        }
    return shapes


class CheckedReader:
    """A file in memory that notes what is read of it and allows nothing outside it."""

    def __init__(self, data: bytes, name: str = "model.safetensors") -> None:
        self.name = name
        self.size = len(data)
        self._data = data
        self.ranges: list[tuple[int, int]] = []

    def read(self, start: int, length: int) -> bytes:
        assert 0 <= start <= start + length <= self.size, f"reads {start}+{length} of {self.size}"
        self.ranges.append((start, start + length))
        return self._data[start : start + length]
