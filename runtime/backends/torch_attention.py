"""Attention over pages on the CPU, in shapes that do not depend on how long a context is.

Scores are taken per page, so that every matrix product has the same inner size, and pages are
added first to last. A page that a row may not see adds exactly nothing, so a row gets the same
bits next to a longer one as alone.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from dspark.runtime.backends.base import Reads

# A product of one, two or three rows takes another path in MKL than a longer one.
_ROW_MULTIPLE = 4

_FEW_PAGES = 4


@dataclass(slots=True)
class AttentionGroup:
    """Requests of one pass that bring the same number of rows, with the pages they read.

    `rows` are the numbers of their rows in the pass, and `padded` the same with each request
    filled up by repeats of its first row: [requests * padded rows]. `pages` [S] is what they read,
    request by request, and `owner` [S] the request that reads it; `owned` [requests, most pages]
    turns that round, filled up by repeats of a request's first page. `hidden`
    [S, 1, rows * group, P] marks the places a row may not see, `unread` [S, 1, P, 1] those that
    none may.
    """

    rows: torch.Tensor
    padded: torch.Tensor
    requests: int
    kept: int
    pages: torch.Tensor
    owner: torch.Tensor
    owned: torch.Tensor
    hidden: torch.Tensor
    unread: torch.Tensor
    _places: tuple[torch.Tensor, torch.Tensor] | None = None

    def places(self, heads: int, group: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Which query vector goes where, and back, for a pass of `heads` query heads.

        The first says for every page read, key head, padded row and query head of the group which
        of the pass's [R * heads] vectors it is; the second for the group's [rows * heads] results
        where they are in [requests, key heads, padded rows, group]. One lookup each then stands for
        what would be a handful of copies in every layer.
        """
        if self._places is None:
            kv_heads, padded_rows = heads // group, len(self.padded) // self.requests
            shape = (self.requests, kv_heads, padded_rows, group)
            of_head = torch.arange(heads).view(1, kv_heads, 1, group)
            vectors = self.padded.view(self.requests, 1, padded_rows, 1) * heads + of_head
            results = torch.arange(vectors.numel()).view(shape).transpose(1, 2)[:, : self.kept]
            self._places = vectors[self.owner].flatten(), results.flatten()
        return self._places


def plan_groups(reads: Sequence[Reads], page_size: int, group: int) -> list[AttentionGroup]:
    """The requests of a pass, grouped by how many rows they bring."""
    by_rows: dict[int, list[tuple[int, Reads]]] = defaultdict(list)
    first_row = 0
    for request in reads:
        by_rows[len(request.ends)].append((first_row, request))
        first_row += len(request.ends)
    return [_plan(rows, members, page_size, group) for rows, members in by_rows.items()]


def _plan(
    rows: int, members: Sequence[tuple[int, Reads]], page_size: int, group: int
) -> AttentionGroup:
    # INVARIANT: a read without rows would make a group that computes nothing.
    assert rows > 0
    padded_rows = rows
    while padded_rows * group % _ROW_MULTIPLE:
        padded_rows += 1
    row_numbers: list[int] = []
    padded: list[int] = []
    pages: list[int] = []
    owner: list[int] = []
    begins: list[list[int]] = []
    ends: list[list[int]] = []
    starts: list[int] = []
    owned: list[list[int]] = []
    filling = [0] * (padded_rows - rows)
    for number, (first, request) in enumerate(members):
        mine = list(range(first, first + rows))
        row_numbers += mine
        padded += [*mine, *(first for _ in filling)]
        begin_list = [*request.begins, *(request.begins[0] for _ in filling)]
        end_list = [*request.ends, *(request.ends[0] for _ in filling)]
        first_page = min(request.begins) // page_size
        last_page = (max(request.ends) - 1) // page_size
        owned.append(list(range(len(pages), len(pages) + last_page + 1 - first_page)))
        for page in range(first_page, last_page + 1):
            pages.append(request.pages[page])
            owner.append(number)
            starts.append(page * page_size)
            begins.append(begin_list)
            ends.append(end_list)
    most = max(len(mine) for mine in owned)
    position = torch.tensor(starts)[:, None] + torch.arange(page_size)[None, :]
    begin, end = torch.tensor(begins)[:, :, None], torch.tensor(ends)[:, :, None]
    visible = (position[:, None, :] >= begin) & (position[:, None, :] < end)
    return AttentionGroup(
        rows=torch.tensor(row_numbers),
        padded=torch.tensor(padded),
        requests=len(members),
        kept=rows,
        pages=torch.tensor(pages),
        owner=torch.tensor(owner),
        owned=torch.tensor([mine + mine[:1] * (most - len(mine)) for mine in owned]),
        hidden=(~visible).repeat_interleave(group, dim=1)[:, None],
        unread=~visible.any(dim=1)[:, None, :, None],
    )


def attend_group(
    q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, plan: AttentionGroup
) -> torch.Tensor:
    """Attention of the group's rows: [rows of the group, A * d], in the order of `plan.rows`."""
    _, heads, head_dim = q.shape
    kv_heads = keys.shape[1]
    group = heads // kv_heads
    requests, owner = plan.requests, plan.owner
    vectors, results = plan.places(heads, group)
    # float32 whatever the model's format: sums over a long context need the digits.
    k = keys.index_select(0, plan.pages).float()
    v = values.index_select(0, plan.pages).float().masked_fill_(plan.unread, 0.0)
    wide = q.reshape(-1, head_dim).index_select(0, vectors).float() * (1.0 / math.sqrt(head_dim))
    scores = torch.bmm(
        wide.view(len(k) * kv_heads, -1, head_dim), k.flatten(0, 1).transpose(1, 2)
    ).view(len(k), kv_heads, -1, k.shape[2])
    scores.masked_fill_(plan.hidden, -torch.inf)
    if requests > 1:
        page_best = scores.amax(-1, keepdim=True)
        best = page_best.index_select(0, plan.owned.flatten())
        best = best.view(*plan.owned.shape, *page_best.shape[1:]).amax(1).index_select(0, owner)
    else:
        best = scores.amax((0, -1), keepdim=True)
    weights = scores.sub_(best).exp_()
    weighted = torch.bmm(weights.flatten(0, 1), v.flatten(0, 1)).view(*weights.shape[:3], head_dim)
    # The sum of the weights beside the weighted sum, to be added up in one go.
    both = _in_order(torch.cat([weighted, weights.sum(-1, keepdim=True)], -1), plan)
    out = (both[..., :head_dim] / both[..., head_dim:]).view(-1, head_dim)
    return out.index_select(0, results).view(-1, heads * head_dim).to(q.dtype)


def _in_order(pages: torch.Tensor, plan: AttentionGroup) -> torch.Tensor:
    """The sum of `pages` [S, ...] per request, one page after the other: [requests, ...]."""
    if len(pages) == plan.requests:
        return pages
    if plan.requests == 1 and len(pages) <= _FEW_PAGES:
        # The same sum in the same order as below, for less than the call below costs.
        out = pages[0]
        for page in pages[1:]:
            out = out + page
        return out[None]
    return pages.new_zeros((plan.requests, *pages.shape[1:])).index_add_(0, plan.owner, pages)
