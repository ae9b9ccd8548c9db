"""From requests to rows: positions, slots and what each row may see."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dspark.runtime.backends.base import Array, Backend, KvStore, Reads
from dspark.runtime.models.config import DecoderConfig
from dspark.runtime.models.decoder import RowPlan


@dataclass(frozen=True, slots=True)
class Segment:
    """Consecutive tokens of one request in a pass.

    The first stands at position `start`; `pages` is the request's page table, and covers them all.
    """

    tokens: Sequence[int]
    start: int
    pages: Sequence[int]

    @property
    def end(self) -> int:
        """The position after the last token."""
        return self.start + len(self.tokens)

    def slots(self, page_size: int) -> list[int]:
        """Where the keys and values of its rows go."""
        return [
            self.pages[position // page_size] * page_size + position % page_size
            for position in range(self.start, self.end)
        ]


def plan_rows(
    backend: Backend,
    config: DecoderConfig,
    segments: Sequence[Segment],
    store: KvStore,
    rope_table: Array,
    *,
    causal: bool,
    sliding_causal: bool = True,
) -> RowPlan:
    """The plan of a pass over the rows of `segments`, in their order.

    A causal row sees the positions up to its own. Otherwise, as in a draft's block, it sees the
    whole segment too. `causal` is about the layers that see everything, `sliding_causal` about
    those with a window. A window of w is the w positions up to the row's own, and without
    causality as many after it.
    """
    group = config.num_attention_heads // config.num_key_value_heads
    windows = {config.window(layer) for layer in range(config.num_hidden_layers)}
    return RowPlan(
        slots=_slots(backend, segments, store),
        rotary=_rotary(backend, segments, rope_table),
        attention={
            window: backend.attention_plan(
                [
                    _reads(segment, window, causal=causal if window is None else sliding_causal)
                    for segment in segments
                ],
                store,
                group,
            )
            for window in windows
        },
    )


def plan_writes(
    backend: Backend, segments: Sequence[Segment], store: KvStore, rope_table: Array
) -> RowPlan:
    """The plan for rows that are only kept, and look at nothing."""
    return RowPlan(
        slots=_slots(backend, segments, store),
        rotary=_rotary(backend, segments, rope_table),
        attention={},
    )


def _slots(backend: Backend, segments: Sequence[Segment], store: KvStore) -> Array:
    slots = [slot for segment in segments for slot in segment.slots(store.page_size)]
    return backend.slots(slots, store)


def _rotary(backend: Backend, segments: Sequence[Segment], rope_table: Array) -> Array:
    positions = [at for segment in segments for at in range(segment.start, segment.end)]
    return backend.rotary(rope_table, positions)


def _reads(segment: Segment, window: int | None, *, causal: bool) -> Reads:
    positions = range(segment.start, segment.end)
    if causal:
        ends = [position + 1 for position in positions]
    elif window is None:
        ends = [segment.end] * len(positions)
    else:
        ends = [min(segment.end, position + window) for position in positions]
    begins = [0 if window is None else max(0, position + 1 - window) for position in positions]
    return Reads(segment.pages, begins, ends)
