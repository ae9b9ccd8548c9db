"""How attention is launched: the grids, the blocks and the shared memory."""

from __future__ import annotations

from dataclasses import dataclass

from dspark.kernel_sizes import HEAD_DIMS, MOST_QUERIES, MOST_ROWS
from dspark.kernels.errors import LaunchError

SPLIT = 256
"""Positions of a split, a multiple of 64. One number for all passes of an engine, because the last
bits of a row depend on it. Fewer spread a short context over more multiprocessors; more write less,
for in each split a query leaves four bytes a dimension, which are read again.
"""

_STAGES = (3, 2)
_TILE = 64
_PAD = 8
_STRANDS = 4
_COMBINE_WARPS = 8


@dataclass(frozen=True, slots=True)
class AttentionGeometry:
    """What `attend` and the `combine_splits` behind it are given besides their other arguments."""

    grid: tuple[int, int, int]
    block: int
    smem: int
    stages: int
    combine_grid: int
    combine_block: int = 32 * _COMBINE_WARPS


def attention_geometry(
    *,
    requests: int,
    width: int,
    heads: int,
    kv_heads: int,
    head_dim: int,
    splits: int,
    most_shared: int,
) -> AttentionGeometry:
    """The launches for `requests` of `width` rows each.

    `most_shared` is what a block of the device may have. Results do not depend on what is chosen
    here, to the last bit.

    Raises:
        LaunchError: the kernels do not take such sizes, or the device has too little for them.
    """
    if head_dim not in HEAD_DIMS:
        raise LaunchError(f"attention takes heads of {HEAD_DIMS}, not of {head_dim}")
    if heads < 1 or kv_heads < 1 or heads % kv_heads:
        raise LaunchError(f"{heads} query heads do not share {kv_heads} key heads evenly")
    queries = width * heads // kv_heads
    if not 1 <= width <= MOST_ROWS or queries > MOST_QUERIES:
        raise LaunchError(
            f"attention takes 1 to {MOST_ROWS} rows a request and up to {MOST_QUERIES} queries of a"
            f" key head, not {width} and {queries}"
        )
    tiles = -(-queries // 16)
    # Four warps share 16 queries, so that a single row keeps more than one busy; at eight times 16
    # that would be more threads than there are registers for.
    warps = tiles * (4 if tiles <= 4 else 2)
    for stages in _STAGES:
        smem = _shared_bytes(tiles, head_dim, stages)
        if smem <= most_shared:
            return AttentionGeometry(
                grid=(splits, kv_heads, requests),
                block=32 * warps,
                smem=smem,
                stages=stages,
                combine_grid=-(-requests * width * heads // _COMBINE_WARPS),
            )
    raise LaunchError(
        f"attention of {queries} queries of {head_dim} needs {smem} bytes of shared memory, beyond"
        f" {most_shared}"
    )


def _shared_bytes(tiles: int, head_dim: int, stages: int) -> int:
    pitch = 2 * (head_dim + _PAD)
    weights = 2 * (_TILE + _PAD) + _STRANDS * 2 * 4
    return 16 * tiles * (pitch + weights) + stages * _TILE * pitch
