"""The sizes that the CUDA kernels take on every GPU, held against the configs of a pair.

They are here and not beside the kernels because a plan asks for them, and the router imports no
kernel. What depends on which GPU it is, only what loads a pair can ask.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from dspark.canonical import DRAFTS
from dspark.contract import Finding, Value
from dspark.findings import finding
from dspark.match_tensors import integer

HEAD_DIMS = (64, 80, 96, 128)

MOST_ROWS = 16
"""Rows of one request in attention."""

MOST_QUERIES = 128
"""Rows of one request times the query heads that share a key head."""

MOST_ROUND_ROWS = 512
"""Rows of a round, of all requests together."""

_VECTOR = 8
"""Values of a vector load; weights, activations and vocabularies are whole vectors."""

_VECTORS = ("hidden_size", "intermediate_size", "vocab_size")

Values = Mapping[str, Value]
"""A config in canonical keys."""


def size_findings(target: Values, draft: Values | None, batch: int) -> Iterator[Finding]:
    """`size-without-kernel` for each size that no kernel takes; `batch` is requests at a time.

    Of what a draft shares with its target, `draft` has the target's rows.
    """
    yield from _of_layers(target, 1 if draft is None else integer(draft, DRAFTS) + 1)
    block = 0
    if draft is not None:
        block = integer(draft, "block_size")
        yield from _of_layers(draft, block)
        for key in ("draft_vocab_size", "markov_rank"):
            yield from _vectors(draft, key)
        if integer(draft, DRAFTS) >= MOST_ROWS:
            yield _without("block_size", block, f"blocks of up to {MOST_ROWS - 1} drafts")
    if batch * (block + 1) > MOST_ROUND_ROWS:
        expected = f"up to {MOST_ROUND_ROWS} rows a round, {block + 1} for each request"
        yield _without("max_batch", batch, expected)


def _of_layers(config: Values, rows: int) -> Iterator[Finding]:
    for key in _VECTORS:
        yield from _vectors(config, key)
    head_dim, heads = (integer(config, key) for key in ("head_dim", "num_attention_heads"))
    if head_dim not in HEAD_DIMS:
        expected = "heads of " + ", ".join(str(size) for size in HEAD_DIMS)
        yield _without("head_dim", head_dim, expected)
    if heads // integer(config, "num_key_value_heads") * rows > MOST_QUERIES:
        expected = f"up to {MOST_QUERIES // rows} query heads to a key head at {rows} rows"
        yield _without("num_attention_heads", heads, expected)


def _vectors(config: Values, key: str) -> Iterator[Finding]:
    got = integer(config, key)
    if got % _VECTOR:
        yield _without(key, got, f"multiples of {_VECTOR}")


def _without(key: str, got: int, expected: str) -> Finding:
    return finding("size-without-kernel", key=key, got=got, expected=expected)
