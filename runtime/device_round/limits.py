"""What the kernels take on a device, held against the configs of a pair before a weight is read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict

from dspark.canonical import DRAFTS
from dspark.contract import Finding
from dspark.findings import finding
from dspark.kernel_sizes import MOST_ROUND_ROWS, size_findings
from dspark.kernels.attention_geometry import SPLIT
from dspark.kernels.shared_memory import highest_rank, step_requests, widest_norm
from dspark.runtime.backends.cuda_attention import MOST_PARTIAL
from dspark.runtime.models.config import DraftConfig, TargetConfig

_FLOAT32, _BFLOAT16 = 4, 2


def sizes_without_kernel(
    target: TargetConfig, draft: DraftConfig | None, max_batch: int, most_shared: int
) -> Iterator[Finding]:
    """`size-without-kernel` for each size that no kernel takes.

    `most_shared` is how many bytes of shared memory a block of the device may have.
    """
    of_draft = None if draft is None else asdict(draft) | {DRAFTS: draft.drafts_per_round}
    yield from size_findings(asdict(target), of_draft, max_batch)
    widest = widest_norm(most_shared)
    for config in (target, draft):
        if config is not None and config.hidden_size > widest:
            got = config.hidden_size
            yield _too_wide("hidden_size", got, f"sizes of up to {widest}", most_shared)
    if draft is None:
        return
    rank, few = draft.markov_rank, step_requests(1)
    highest = highest_rank(most_shared, few)
    if rank > highest:
        yield _too_wide("markov_rank", rank, f"ranks of up to {highest}", most_shared)
    elif max_batch > few and rank > highest_rank(most_shared, step_requests(few + 1)):
        expected = f"up to {few} requests at a `markov_rank` of {rank}"
        yield _too_wide("max_batch", max_batch, expected, most_shared)


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
        found += MOST_ROUND_ROWS * (kept + values) * _BFLOAT16
    return found + max(partial, MOST_PARTIAL) * _FLOAT32


def _too_wide(key: str, got: int, expected: str, most_shared: int) -> Finding:
    values = {"key": key, "got": got, "expected": expected, "shared": most_shared}
    return finding("size-without-kernel", **values)
