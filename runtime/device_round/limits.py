"""What the kernels take, held against the configs of a pair before a weight is read."""

from __future__ import annotations

from collections.abc import Iterator

from dspark.kernels.attention_geometry import HEAD_DIMS, MOST_QUERIES, MOST_ROWS, SPLIT
from dspark.runtime.backends.cuda import SCRATCH_ROWS
from dspark.runtime.backends.cuda_attention import MOST_PARTIAL
from dspark.runtime.gpu import Trouble
from dspark.runtime.models.config import DecoderConfig, DraftConfig, TargetConfig

_FLOAT32, _BFLOAT16 = 4, 2
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


def working_bytes(
    target: TargetConfig, draft: DraftConfig | None, max_batch: int, positions: int
) -> int:
    """Bytes that rounds work in, beyond weights, caches and one set of logits for each row.

    Those of partial attention over all `positions` of a request, chances of the target and of the
    draft, counts of tokens, the slots that nothing reads, and activations of a piece of a prompt.
    """
    splits = -(-(positions + (0 if draft is None else draft.block_size)) // SPLIT)
    width = 1 if draft is None else draft.drafts_per_round + 1
    found = max_batch * (2 * width + 2) * target.vocab_size * _FLOAT32
    partial = 0
    for config, rows in ((target, width), (draft, 0 if draft is None else draft.block_size)):
        if config is None:
            continue
        each = config.num_attention_heads * (config.head_dim + 2) * splits
        partial = max(partial, max_batch * rows * each)
        kept = 2 * config.num_hidden_layers * config.num_key_value_heads * config.head_dim
        heads = config.num_attention_heads + 2 * config.num_key_value_heads
        values = 3 * config.hidden_size + 2 * heads * config.head_dim + 3 * config.intermediate_size
        found += SCRATCH_ROWS * (kept + values) * _BFLOAT16
    return found + max(partial, MOST_PARTIAL) * _FLOAT32


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
