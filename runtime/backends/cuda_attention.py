"""Attention on a device: what its two kernels are given, whoever planned the pass."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from dspark.kernel_sizes import MOST_QUERIES, MOST_ROWS
from dspark.kernels.arrays import DeviceArray
from dspark.kernels.attention_geometry import SPLIT, attention_geometry
from dspark.kernels.launch import Device
from dspark.runtime.backends.base import KvStore, Reads
from dspark.runtime.backends.cuda_scratch import Scratch

MOST_PARTIAL = 1 << 24
"""Float32 values of partial results that one launch may leave, where a pass can be cut."""


@dataclass(frozen=True, slots=True)
class Run:
    """Rows of a pass from `first` on: `requests` times `width`, each request with one page table.

    `tables` is int32 [requests, pages], `begins` and `ends` [requests, width]; positions go up to
    `splits` splits.
    """

    first: int
    requests: int
    width: int
    tables: DeviceArray
    begins: DeviceArray
    ends: DeviceArray
    splits: int


@dataclass(frozen=True, slots=True)
class _Piece:
    """Up to `MOST_ROWS` rows of one request."""

    pages: Sequence[int]
    begins: Sequence[int]
    ends: Sequence[int]


def plan_runs(
    scratch: Scratch, name: str, reads: Sequence[Reads], store: KvStore, group: int, values: int
) -> list[Run]:
    """The runs of a pass over `reads`; `values` are those of all of a row's query heads.

    A request of many rows becomes several of few, which see each other's keys all the same.
    """
    runs: list[Run] = []
    first = 0
    for number, pieces in enumerate(_alike(list(_pieces(reads, group)), values)):
        requests, width = len(pieces), len(pieces[0].ends)
        most = max(max(piece.ends) for piece in pieces)
        table_pages = -(-most // store.page_size)
        tables = np.zeros((requests, table_pages), np.int32)
        for row, piece in enumerate(pieces):
            pages = piece.pages[: -(-max(piece.ends) // store.page_size)]
            tables[row, : len(pages)] = pages
        begins, ends = [piece.begins for piece in pieces], [piece.ends for piece in pieces]
        runs.append(
            Run(
                *(first, requests, width),
                scratch.filled(f"{name} {number} tables", tables),
                scratch.filled(f"{name} {number} begins", np.array(begins)),
                scratch.filled(f"{name} {number} ends", np.array(ends)),
                splits=-(-most // SPLIT),
            )
        )
        first += requests * width
    return runs


def _pieces(reads: Sequence[Reads], group: int) -> Iterator[_Piece]:
    most = min(MOST_ROWS, MOST_QUERIES // group)
    for request in reads:
        for at in range(0, len(request.ends), most):
            rows = slice(at, at + most)
            yield _Piece(request.pages, request.begins[rows], request.ends[rows])


def _alike(pieces: Sequence[_Piece], values: int) -> Iterator[list[_Piece]]:
    """Neighbours that have equally many rows, as many at once as there is room for."""
    run: list[_Piece] = []
    for piece in pieces:
        if run:
            rows = len(run) * len(piece.ends) + len(piece.ends)
            most = max(max(each.ends) for each in (*run, piece))
            partial = rows * values * -(-most // SPLIT)
            if len(run[0].ends) != len(piece.ends) or partial > MOST_PARTIAL:
                yield run
                run = []
        run.append(piece)
    if run:
        yield run


def attend(
    device: Device, scratch: Scratch, q: DeviceArray, store: KvStore, layer: int, plan: list[Run]
) -> DeviceArray:
    """`Backend.attend`, run after run."""
    rows, heads, head_dim = q.shape
    keys, values = store.keys[layer], store.values[layer]
    pages, kv_heads, page_size, _ = keys.shape
    out = scratch.empty("mixed", (rows, heads * head_dim))
    scale = float(head_dim**-0.5)
    for run in plan:
        count = run.requests * run.width
        shape = run.requests, run.width, heads, run.splits
        partial = scratch.empty("partial", (*shape, head_dim), "f32")
        stats = scratch.empty("stats", (*shape, 2), "f32")
        part = slice(run.first, run.first + count)
        geometry = attention_geometry(
            requests=run.requests,
            width=run.width,
            heads=heads,
            kv_heads=kv_heads,
            head_dim=head_dim,
            splits=run.splits,
            most_shared=device.driver.most_shared,
        )
        to = out.rows(part.start, part.stop)
        table_pages = run.tables.shape[1]
        device.kernel(f"attend_{head_dim}")(
            geometry.grid,
            geometry.block,
            (
                *(q.rows(part.start, part.stop), keys, values, run.tables, run.begins, run.ends),
                *(partial, stats, to, run.requests, run.width, heads, kv_heads, pages, page_size),
                *(table_pages, run.splits, SPLIT, geometry.stages, scale),
            ),
            smem=geometry.smem,
        )
        positions = table_pages * page_size
        device.kernel(f"combine_splits_{head_dim}")(
            geometry.combine_grid,
            geometry.combine_block,
            (
                *(partial, stats, run.begins, run.ends, to),
                *(count, heads, positions, run.splits, SPLIT),
            ),
        )
    return out
