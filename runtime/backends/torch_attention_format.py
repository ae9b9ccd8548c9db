"""In which number format attention reads keys and values, such that rows stay independent.

Reading them as they are kept is several times as fast as turning them into float32 first. Which
kernels torch then picks for how many rows, nothing documents and every processor decides anew, so
it is measured.
"""

from __future__ import annotations

from functools import cache

import torch

from dspark.runtime.backends.base import Reads
from dspark.runtime.backends.torch_attention import attend_stretches, new_store, plan_stretches

_PAGE = 32

# More than the slots that torch takes at a time, so that sums over several of its steps are seen.
_LENGTH = 20 * _PAGE

# Rows in one call, around those at which torch cuts them or may take other kernels.
_COUNTS = (2, 3, 8, 17, 33, 65, 130)


def reading_format(
    kept: torch.dtype, kv_heads: int, group: int, head_dim: int, threads: int
) -> torch.dtype:
    """`kept`, if a row then gets the same bits in any company with so many threads, else float32.

    `kept` is the store's number format; measured once for each.
    """
    if kept is torch.float32 or _rows_hold(kept, kv_heads, group, head_dim, threads):
        return kept
    return torch.float32


@cache
def _rows_hold(kept: torch.dtype, kv_heads: int, group: int, head_dim: int, threads: int) -> bool:
    # INVARIANT: the caller read the number of threads; it is a parameter to be cached by.
    assert threads == torch.get_num_threads()
    generator = torch.Generator().manual_seed(0)
    # Each key is there twice, with a value and its negative: the sums cancel to their rounding
    # errors, which show the order they were taken in.
    half, width = _LENGTH // 2, kv_heads * head_dim
    keys, values = (torch.randn(half, width, generator=generator) for _ in range(2))
    twice = torch.cat([torch.cat([keys, values], 1), torch.cat([keys, -values], 1)])
    mixed = twice[torch.randperm(_LENGTH, generator=generator)]
    store = new_store(1, _LENGTH // _PAGE, _PAGE, kv_heads, head_dim, kept)
    store.both[0].copy_(mixed)
    most = max(_COUNTS)
    # As `place_heads` hands them over: a row's queries lie before its keys and values.
    heads = torch.randn(most, kv_heads * (group + 2), head_dim, generator=generator).to(kept)
    q = heads[:, : kv_heads * group]

    def attend(count: int) -> torch.Tensor:
        reads = Reads(range(_LENGTH // _PAGE), [0] * count, [_LENGTH] * count)
        plan = plan_stretches([reads], _PAGE, group, head_dim)
        return torch.cat(
            [
                attend_stretches(part, store.both[0], _PAGE, kv_heads, plan, kept)
                for part in torch.split(q, count)
                if len(part) == count
            ]
        )

    alone = attend(1)
    return all(torch.equal(part := attend(count), alone[: len(part)]) for count in _COUNTS)
