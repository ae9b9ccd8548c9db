"""What the kernels take, held against the configs of a pair before a weight is read."""

from __future__ import annotations

from collections.abc import Iterator

from dspark.kernels.attention_geometry import HEAD_DIMS, MOST_QUERIES, MOST_ROWS
from dspark.runtime.backends.cuda import SCRATCH_ROWS
from dspark.runtime.gpu import Trouble
from dspark.runtime.models.config import DecoderConfig, DraftConfig, TargetConfig

_VECTOR = 8
"""Values of a vector load; weights, activations and vocabularies are whole vectors."""

_VECTORS = ("hidden_size", "intermediate_size", "vocab_size")


def size_troubles(
    target: TargetConfig, draft: DraftConfig | None, max_batch: int
) -> Iterator[Trouble]:
    """Each size that no kernel takes, as the finding `size-without-kernel`."""
    yield from _of_layers(target, 1 if draft is None else draft.drafts_per_round + 1)
    block = 0
    if draft is not None:
        block = draft.block_size
        yield from _of_layers(draft, block)
        for key in ("draft_vocab_size", "markov_rank"):
            yield from _vectors(draft, key)
        if draft.drafts_per_round >= MOST_ROWS:
            expected = f"blocks of up to {MOST_ROWS - 1} drafts"
            yield _trouble("block_size", draft.block_size, expected)
    rows = max_batch * (block + 1)
    if rows > SCRATCH_ROWS:
        expected = f"up to {SCRATCH_ROWS} rows a round, {block + 1} for each request"
        yield _trouble("max_batch", max_batch, expected)


def _of_layers(config: DecoderConfig, rows: int) -> Iterator[Trouble]:
    for key in _VECTORS:
        yield from _vectors(config, key)
    if config.head_dim not in HEAD_DIMS:
        expected = "heads of " + ", ".join(str(size) for size in HEAD_DIMS)
        yield _trouble("head_dim", config.head_dim, expected)
    group = config.num_attention_heads // config.num_key_value_heads
    if group * rows > MOST_QUERIES:
        expected = f"up to {MOST_QUERIES // rows} query heads to a key head at {rows} rows"
        yield _trouble("num_attention_heads", config.num_attention_heads, expected)


def _vectors(config: DecoderConfig, key: str) -> Iterator[Trouble]:
    got = getattr(config, key)
    if got % _VECTOR:
        yield _trouble(key, got, f"multiples of {_VECTOR}")


def _trouble(key: str, got: int, expected: str) -> Trouble:
    return Trouble("size-without-kernel", {"key": key, "got": got, "expected": expected})
