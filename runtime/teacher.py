"""What the target says at each token of a given text, asked one row at a time.

This is how decoding without a draft sees a text, whoever wrote it: no drafts, no batch, and no
kernel that has more than one row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from dspark.runtime.models.qwen3 import Qwen3Target
from dspark.runtime.models.rows import Segment

_PAGE_SIZE = 32
_CHUNK = 256


@dataclass(frozen=True, slots=True)
class Judged:
    """One token of the text.

    `gap` is how far its logit lies below the likeliest token's, 0 if it is that token itself.
    `margin` is how far the second likeliest lies below the likeliest: how near a tie was.
    """

    token: int
    likeliest: int
    gap: float
    margin: float

    @property
    def diverges(self) -> bool:
        """Whether the target alone would have put out another token here."""
        return self.token != self.likeliest


def judge(target: Qwen3Target, prompt: Sequence[int], tokens: Sequence[int]) -> Iterator[Judged]:
    """The target's word on each of `tokens`, which follow `prompt`."""
    backend = target.backend
    pages = list(range(-(-(len(prompt) + len(tokens)) // _PAGE_SIZE)))
    store = target.new_store(len(pages), _PAGE_SIZE)
    before, last = prompt[:-1], prompt[-1]
    with backend.session():
        for start in range(0, len(before), _CHUNK):
            target.forward([Segment(before[start : start + _CHUNK], start, pages)], store)
        for place, token in enumerate(tokens, len(before)):
            passed = target.forward([Segment([last], place, pages)], store)
            logits = backend.host(target.logits(passed.hidden))[0]
            # The first of equals, as the engine takes it.
            likeliest = int(logits.argmax())
            second, first = np.partition(logits, -2)[-2:]
            yield Judged(token, likeliest, float(first - logits[token]), float(first - second))
            last = token
