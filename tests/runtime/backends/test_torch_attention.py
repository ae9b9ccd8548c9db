"""Attention on the CPU: the same bits alone and in company, and nothing of what nobody wrote.

That it is attention at all, `test_torch_cpu.py` holds against the oracle.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple

import pytest
import torch

from dspark.runtime.backends.base import KvStore, Reads
from dspark.runtime.backends.torch_cpu import TorchCpuBackend


class Geometry(NamedTuple):
    """Key heads, query heads to each, head size, positions of a page."""

    kv_heads: int
    group: int
    head_dim: int
    page_size: int


# What released models have, then what makes torch and MKL change their ways: many rows at a time,
# no whole vectors, tiny pages, and a single value for a head.
GEOMETRIES = [
    Geometry(2, 3, 64, 32),
    Geometry(8, 2, 128, 32),
    Geometry(1, 32, 16, 32),
    Geometry(1, 7, 20, 16),
    Geometry(3, 5, 10, 16),
    Geometry(3, 1, 10, 4),
    Geometry(2, 1, 12, 4),
    Geometry(1, 1, 6, 1),
]
LENGTH = 101
EPS = 1e-6


def values(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


class Layer:
    """One layer's heads for `LENGTH` positions of a request, on pages as given."""

    def __init__(self, dtype: str, geometry: Geometry, pages: Sequence[int]) -> None:
        self.backend = TorchCpuBackend(dtype)  # type: ignore[arg-type]
        self.geometry = geometry
        self.pages = pages
        self.heads = geometry.kv_heads * geometry.group
        width = (self.heads + 2 * geometry.kv_heads) * geometry.head_dim
        self.x = self.backend.parameter(values(LENGTH, width, seed=1))
        weights = (values(geometry.head_dim, seed=seed) for seed in (2, 3))
        query, key = (self.backend.parameter(weight) for weight in weights)
        self.norms = self.backend.prepare_head_norms(query, key, self.heads, geometry.kv_heads)
        ones = torch.ones(LENGTH, 1, geometry.head_dim)
        self.rotary = ones, ones * 0

    def empty_store(self) -> KvStore:
        _, _, head_dim, page_size = self.geometry
        store = self.backend.kv_store(
            1, max(self.pages) + 1, page_size, self.geometry.kv_heads, head_dim
        )
        for array in (*store.keys, *store.values):
            array.fill_(torch.nan)
        return store

    def rows(self, begin: int, end: int, store: KvStore, window: int | None) -> torch.Tensor:
        """What the positions `begin` to before `end` get in one pass, in a store filled so far."""
        size = self.geometry.page_size
        slots = [self.pages[at // size] * size + at % size for at in range(begin, end)]
        q = self.backend.place_heads(
            self.x[begin:end].clone(),
            *(self.norms, EPS, tuple(part[begin:end] for part in self.rotary)),
            *(store, 0, self.backend.slots(slots, store)),
        )
        begins = [0 if window is None else max(0, at + 1 - window) for at in range(begin, end)]
        reads = Reads(self.pages, begins, [at + 1 for at in range(begin, end)])
        plan = self.backend.attention_plan([reads], store, self.geometry.group)
        return self.backend.attend(q, store, 0, plan)


def page_numbers(geometry: Geometry, kind: str) -> list[int]:
    count = -(-LENGTH // geometry.page_size)
    if kind == "one after the other":
        return list(range(1, count + 1))
    return random.Random(5).sample(range(2 * count), count)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("geometry", GEOMETRIES, ids=str)
@pytest.mark.parametrize("window", [None, 7])
def test_h1_a_rows_bits_do_not_depend_on_the_pass_it_is_in(
    dtype: str, geometry: Geometry, window: int | None, threads: int
) -> None:
    layer = Layer(dtype, geometry, page_numbers(geometry, "one after the other"))
    expected = layer.rows(0, LENGTH, layer.empty_store(), window)
    assert torch.isfinite(expected).all()
    moved = Layer(dtype, geometry, page_numbers(geometry, "scattered"))
    for other, sizes in ((layer, [1]), (layer, [64, 3]), (moved, [8]), (moved, [3, 1, 30, 5])):
        store, at, passes = other.empty_store(), 0, []
        while at < LENGTH:
            end = min(at + sizes[len(passes) % len(sizes)], LENGTH)
            passes.append(other.rows(at, end, store, window))
            at = end
        assert torch.equal(expected, torch.cat(passes)), (sizes, other is moved, threads)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("geometry", GEOMETRIES, ids=str)
def test_h1_a_rows_bits_do_not_depend_on_other_requests(
    dtype: str, geometry: Geometry, threads: int
) -> None:
    layer = Layer(dtype, geometry, page_numbers(geometry, "scattered"))
    store, backend = layer.empty_store(), layer.backend
    layer.rows(0, LENGTH, store, None)
    draw = random.Random(geometry.head_dim)
    views = [sorted(draw.sample(range(LENGTH + 1), 2)) for _ in range(60)]
    q = backend.parameter(values(len(views), layer.heads, geometry.head_dim, seed=9))

    def attended(first: int, counts: Sequence[int]) -> torch.Tensor:
        reads, at = [], first
        for count in counts:
            begins, ends = zip(*views[at : at + count], strict=True)
            reads.append(Reads(layer.pages, begins, ends))
            at += count
        plan = backend.attention_plan(reads, store, geometry.group)
        return backend.attend(q[first:at], store, 0, plan)

    alone = torch.cat([attended(row, [1]) for row in range(len(views))])
    for counts in ([1] * 60, [8, 1, 1, 20, 30], [60], [2] * 30):
        assert torch.equal(alone, attended(0, counts)), (counts, threads)


def test_a_page_is_cleared_for_its_next_owner() -> None:
    layer = Layer("float32", GEOMETRIES[0], page_numbers(GEOMETRIES[0], "scattered"))
    fresh = layer.rows(0, 3, layer.empty_store(), None)
    used = layer.empty_store()
    layer.x.fill_(torch.nan)
    assert torch.isnan(layer.rows(0, 32, used, None)).all()
    layer.x = Layer("float32", GEOMETRIES[0], layer.pages).x
    assert torch.equal(fresh, layer.rows(0, 3, used, None))


def test_a_page_is_not_cleared_while_it_fills() -> None:
    layer = Layer("float32", GEOMETRIES[0], page_numbers(GEOMETRIES[0], "scattered"))
    store = layer.empty_store()
    layer.rows(0, 5, store, None)
    before = store.keys[0][layer.pages[0], :, :5].clone()
    layer.rows(5, 9, store, None)
    assert torch.equal(before, store.keys[0][layer.pages[0], :, :5])
    heads = layer.x.view(LENGTH, -1, layer.geometry.head_dim)[:, -layer.geometry.kv_heads :]
    assert torch.equal(heads[:9], store.values[0][layer.pages[0], :, :9].transpose(0, 1))
