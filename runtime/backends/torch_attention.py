"""Attention over pages on the CPU, such that a row's bits do not depend on its company.

torch's fused attention is called on whole blocks of slots, with a mask for what a row may not see.
Rows that look into the same blocks share a call; no row is computed over more blocks because
another one sees more. Within a call it is the matrix products that must not mix rows up. MKL's do
not, as long as they get a multiple of four; whether oneDNN's for bfloat16 do,
`torch_attention_format.py` finds out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from dspark.runtime.backends.base import KvStore, Reads

# The sums of one to three rows depend on where the operands lie in memory. torch hands MKL the rows
# in parts of 32 or a multiple of it; the last must not be so small.
_ROW_MULTIPLE = 4

# With a row that is no multiple of this, other sums do too.
_VECTOR = 4

# Slots are read in blocks, so that few rows have views of a length of their own.
_BLOCK = 32


@dataclass(frozen=True, slots=True)
class CpuKvStore(KvStore):
    """A store where a slot's keys and values lie side by side, so that one call writes them.

    `both` has, per layer, what `keys` and `values` are views of: [pages * P, 2 * K * d].
    """

    both: list[torch.Tensor]


def new_store(
    layers: int, pages: int, page_size: int, kv_heads: int, head_dim: int, dtype: torch.dtype
) -> CpuKvStore:
    """A store as `Backend.kv_store` describes it."""
    shape = pages * page_size, 2 * kv_heads * head_dim
    both = [torch.empty(shape, dtype=dtype) for _ in range(layers)]
    paged = [layer.view(pages, page_size, -1, head_dim).transpose(1, 2) for layer in both]
    keys = [layer[:, :kv_heads] for layer in paged]
    return CpuKvStore(keys, [layer[:, kv_heads:] for layer in paged], page_size, both)


@dataclass(frozen=True, slots=True)
class Slots:
    """Slots that are about to be written; `begun` are those among them that begin a page."""

    numbers: torch.Tensor
    begun: Sequence[int]


def plan_slots(values: Sequence[int], page_size: int) -> Slots:
    """What `write` takes for these slots."""
    begun = [slot for slot in values if slot % page_size == 0]
    return Slots(torch.tensor(values), begun)


def write(store: CpuKvStore, layer: int, slots: Slots, kv: torch.Tensor) -> None:
    """Puts `kv` [R, 2K, d], keys before values, into the slots.

    A page is cleared when it begins, because blocks are read to their end: what nobody has written
    there since, a mask would not hide if it were NaN.
    """
    both = store.both[layer]
    for slot in slots.begun:
        both[slot : slot + store.page_size].zero_()
    both.view(len(both), *kv.shape[1:]).index_copy_(0, slots.numbers, kv)


@dataclass(frozen=True, slots=True)
class Stretch:
    """Rows of one request that follow each other and look into the same blocks.

    They are the pass's rows from `begin` to before `end`. The blocks are the `length` slots from
    `first` on, of the whole store, or of `pages` of it put one after the other. `mask` broadcasts
    to [1, 1, rows * group, length]: 0 where a row may look, -inf where not.
    """

    begin: int
    end: int
    pages: torch.Tensor | None
    first: int
    length: int
    mask: torch.Tensor


def plan_stretches(
    reads: Sequence[Reads], page_size: int, group: int, head_dim: int
) -> list[Stretch]:
    """The stretches of a pass, in the order of its rows."""
    alone = head_dim % _VECTOR != 0
    plan: list[Stretch] = []
    row = 0
    for request in reads:
        views = list(zip(request.begins, request.ends, strict=True))
        begin = 0
        while begin < len(views):
            blocks = _blocks(*views[begin], page_size)
            end = begin + 1
            while end < len(views) and not alone and _blocks(*views[end], page_size) == blocks:
                end += 1
            part = views[begin:end]
            plan.append(_stretch(row + begin, part, blocks, request.pages, page_size, group))
            begin = end
        row += len(views)
    return plan


def _blocks(begin: int, end: int, page_size: int) -> tuple[int, int]:
    """The positions of the blocks that hold `begin` to `end`; the last ends with its page."""
    full = -(-end // _BLOCK) * _BLOCK
    return begin // _BLOCK * _BLOCK, min(full, -(-end // page_size) * page_size)


def _stretch(
    row: int,
    views: Sequence[tuple[int, int]],
    blocks: tuple[int, int],
    table: Sequence[int],
    page_size: int,
    group: int,
) -> Stretch:
    low, high = blocks
    before = low // page_size
    pages = table[before : -(-high // page_size)]
    first, length = low - before * page_size, high - low
    follow = all(page == pages[0] + number for number, page in enumerate(pages))
    # One row's mask is good for all of its heads, and for the rows that fill up.
    rows = 1 if len(views) == 1 else _filled(len(views) * group)
    mask = np.full((rows, length), -np.inf, dtype=np.float32)
    for number, (begin, end) in enumerate(views):
        mask[number * group : (number + 1) * group, begin - low : end - low] = 0.0
    mask[len(views) * group :] = 0.0
    return Stretch(
        begin=row,
        end=row + len(views),
        pages=None if follow else torch.tensor(pages),
        first=first + pages[0] * page_size if follow else first,
        length=length,
        mask=torch.from_numpy(mask)[None, None],
    )


def _filled(rows: int) -> int:
    return -(-rows // _ROW_MULTIPLE) * _ROW_MULTIPLE


def attend_stretches(
    q: torch.Tensor,
    both: torch.Tensor,
    page_size: int,
    kv_heads: int,
    plan: Sequence[Stretch],
    reading: torch.dtype,
) -> torch.Tensor:
    """Attention of `q` [R, A, d] over a layer's slots: [R, A * d], computed in format `reading`."""
    mixed = [_attend(q, both, page_size, kv_heads, stretch, reading) for stretch in plan]
    return mixed[0] if len(mixed) == 1 else torch.cat(mixed)


def _attend(
    q: torch.Tensor,
    both: torch.Tensor,
    page_size: int,
    kv_heads: int,
    stretch: Stretch,
    reading: torch.dtype,
) -> torch.Tensor:
    _, heads, head_dim = q.shape
    group, width = heads // kv_heads, both.shape[1]
    kept, at = both, stretch.first * width
    if stretch.pages is not None:
        kept = both.view(-1, page_size * width).index_select(0, stretch.pages)
    if kept.dtype is not reading:
        kept = kept.view(-1, width)[stretch.first : stretch.first + stretch.length].to(reading)
        at = 0
    queries = _queries(q, stretch, kv_heads).to(reading)
    shape, strides = (kv_heads, 1, stretch.length, head_dim), (head_dim, width, width, 1)
    if kv_heads == 1:
        # Twice the same: torch would leave the products of a single item to MKL's own threads,
        # which share its rows out in any number.
        queries = queries.expand(2, -1, -1, -1)
        shape, strides = (2, *shape[1:]), (0, *strides[1:])
    mixed = torch.nn.functional.scaled_dot_product_attention(
        queries,
        kept.as_strided(shape, strides, at),
        kept.as_strided(shape, strides, at + kv_heads * head_dim),
        attn_mask=stretch.mask,
    )
    count = stretch.end - stretch.begin
    per_head, _, per_row, _ = mixed.stride()
    by_row = mixed.as_strided(
        (count, kv_heads, group, head_dim), (group * per_row, per_head, per_row, 1)
    )
    return by_row.reshape(count, heads * head_dim)


def _queries(q: torch.Tensor, stretch: Stretch, kv_heads: int) -> torch.Tensor:
    """The stretch's queries by key head, [K, 1, rows * group or more, d]."""
    _, heads, head_dim = q.shape
    group, count = heads // kv_heads, stretch.end - stretch.begin
    # INVARIANT: a row's heads lie side by side, as `place_heads` returns them.
    assert q.stride()[1:] == (head_dim, 1)
    at = q.storage_offset() + stretch.begin * q.stride(0)
    missing = _filled(count * group) - count * group
    whole = head_dim % _VECTOR == 0
    if count == 1 and whole and q.stride(0) >= (heads + missing) * head_dim:
        # What lies behind the queries will do to fill them up with. They are used where they lie,
        # so this is only for those that begin a whole vector in any row.
        shape = kv_heads, 1, group + missing, head_dim
        return q.as_strided(shape, (group * head_dim, head_dim, head_dim, 1), at)
    split = q.as_strided(
        (kv_heads, count, group, head_dim), (group * head_dim, q.stride(0), head_dim, 1), at
    )
    queries = split.reshape(kv_heads, 1, count * group, head_dim)
    return torch.nn.functional.pad(queries, (0, 0, 0, missing)) if missing else queries
