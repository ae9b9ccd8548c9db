"""Pages of keys and values: who holds which, and which prompts' pages can be shared.

The target and the draft keep their keys and values apart, each in its own geometry, but under the
same page numbers: page n of both covers the same positions of the same request. So a request that
takes over a prefix takes the draft's context over with it, and neither can be longer than the
other.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

from dspark.runtime.models.config import DecoderConfig

Digest = bytes


def kv_bytes_per_token(config: DecoderConfig, bytes_per_value: int) -> int:
    """How many bytes one position of this model's keys and values takes, all layers together."""
    per_layer = 2 * config.num_key_value_heads * config.head_dim
    return config.num_hidden_layers * per_layer * bytes_per_value


@dataclass(slots=True)
class PageTable:
    """The pages of one request, and how much of them is filled.

    `length` counts the positions whose keys and values are those of committed tokens; what lies
    behind it is left over from drafts and gets overwritten. `digests` name the full pages so far.
    """

    pages: list[int]
    root: Digest
    length: int = 0
    digests: list[Digest] = field(default_factory=list)


class PagePool:
    """`count` pages of `page_size` positions.

    A page is held by any number of requests, kept for later because its content is known, or free.
    Kept pages are given up, least recently used first, when free ones run out.
    """

    def __init__(self, count: int, page_size: int, *, reuse_prefixes: bool = True) -> None:
        self.count = count
        self.page_size = page_size
        self._reuse = reuse_prefixes
        self._free = list(range(count - 1, -1, -1))
        self._holders = [0] * count
        self._digest_of: dict[int, Digest] = {}
        self._page_of: dict[Digest, int] = {}
        self._kept: OrderedDict[int, None] = OrderedDict()

    @property
    def available(self) -> int:
        """How many pages a new request could get."""
        return len(self._free) + len(self._kept)

    @property
    def held(self) -> int:
        """How many pages requests hold now."""
        return self.count - self.available

    @property
    def kept(self) -> int:
        """How many pages nobody holds, whose content may still be asked for."""
        return len(self._kept)

    def pages_for(self, positions: int) -> int:
        """How many pages this many positions fill."""
        return -(-positions // self.page_size)

    def open(self, tokens: Sequence[int], positions: int, kind: str) -> PageTable | None:
        """Pages for `positions`, the first of them shared as far as `tokens` are known already.

        `kind` keeps apart what must not be shared: pages without draft context are of no use to a
        request that drafts. At least one token is left to compute, because a cache holds no logits.
        Returns None, and takes nothing, when the pages do not suffice.
        """
        table = PageTable([], _digest(b"", kind.encode()))
        shared = self._known(table, tokens) if self._reuse else []
        needed = self.pages_for(positions) - len(shared)
        if needed > self.available - sum(page in self._kept for page in shared):
            return None
        for page in shared:
            self._hold(page)
        table.pages = [*shared, *(self._take() for _ in range(needed))]
        table.length = len(shared) * self.page_size
        return table

    def commit(self, table: PageTable, tokens: Sequence[int], length: int) -> None:
        """Records that the first `length` of the request's `tokens` are in the caches.

        This is the rollback too: whatever was written behind `length` no longer counts. A page
        that is full now can be shared from now on.
        """
        # INVARIANT: committed positions are never taken back, only drafts are.
        assert table.length <= length <= len(table.pages) * self.page_size
        table.length = length
        if not self._reuse:
            return
        while (len(table.digests) + 1) * self.page_size <= length:
            index = len(table.digests)
            digest = self._next_digest(table, tokens, index)
            table.digests.append(digest)
            page = table.pages[index]
            if digest not in self._page_of and page not in self._digest_of:
                self._page_of[digest] = page
                self._digest_of[page] = digest

    def close(self, table: PageTable) -> None:
        """Gives the request's pages back; those with a name stay for whoever asks for them."""
        # The last first: what a page's content is worth depends on the pages before it, so those
        # must be given up after it.
        for page in reversed(table.pages):
            self._holders[page] -= 1
            # INVARIANT: a page is given back once per request that held it.
            assert self._holders[page] >= 0
            if self._holders[page] == 0:
                if page in self._digest_of:
                    self._kept[page] = None
                else:
                    self._free.append(page)
        table.pages = []
        # Pages that follow each other can be read without being fetched one by one.
        self._free.sort(reverse=True)

    def _known(self, table: PageTable, tokens: Sequence[int]) -> list[int]:
        shared: list[int] = []
        for index in range((len(tokens) - 1) // self.page_size):
            digest = self._next_digest(table, tokens, index)
            page = self._page_of.get(digest)
            if page is None:
                break
            table.digests.append(digest)
            shared.append(page)
        return shared

    def _next_digest(self, table: PageTable, tokens: Sequence[int], index: int) -> Digest:
        before = table.digests[index - 1] if index else table.root
        inside = tokens[index * self.page_size : (index + 1) * self.page_size]
        return _digest(before, ",".join(map(str, inside)).encode())

    def _hold(self, page: int) -> None:
        self._kept.pop(page, None)
        self._holders[page] += 1

    def _take(self) -> int:
        if self._free:
            page = self._free.pop()
        else:
            page, _ = self._kept.popitem(last=False)
            del self._page_of[self._digest_of.pop(page)]
        self._holders[page] = 1
        return page


def _digest(before: Digest, content: bytes) -> Digest:
    # Not Python's hash: strangers share pages, so nobody must be able to make a collision.
    return hashlib.blake2b(before + b"|" + content, digest_size=16).digest()
