"""From sources to an engine: route, check, plan, and only then load.

Everything that can be refused is refused before a weight is read; what is left for the weights
themselves are values that are no numbers.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, TypedDict, Unpack

import dspark
from dspark.runtime.devices import (
    Device,
    Dtype,
    block_shared_memory,
    check_device,
    chosen_dtype,
    device_memory,
)
from dspark.runtime.prepared import Loaded, Prepared, known, target_folder
from dspark.runtime.request_check import check_drafts
from dspark.runtime.target_files import read_eos_token_ids, read_tokenizer
from dspark.runtime.weight_files import Progress

if TYPE_CHECKING:
    from dspark import LoadPlan, Table, TargetPlan
    from dspark.runtime.confidence import ConfidenceSchedule
    from dspark.runtime.engine_config import EngineConfig

__all__ = ["Loaded", "Prepared", "open_engine", "prepare"]

_PAGE_SIZE = 32


class Options(TypedDict, total=False):
    """What `open_engine` takes beside the folders; the defaults are those of `prepare`."""

    device: Device
    dtype: Dtype | None
    max_length: int | None
    max_batch: int
    memory: int | str | None
    drafts: int | None
    schedule: ConfidenceSchedule | None
    table: Table | None


def open_engine(
    target: str | os.PathLike[str],
    draft: str | os.PathLike[str] | None = None,
    *,
    progress: Progress | None = None,
    **options: Unpack[Options],
) -> Loaded:
    """An engine for `target`, with `draft` if there is one; both are local folders.

    `device` is `cpu`, the default, or `cuda`; `dtype` is by default float32 on a CPU, where greedy
    text is the same with and without a draft.
    `max_length` is the most tokens of prompt and output, by default all of the target's positions;
    `max_batch` is how many requests run at a time, by default 8. There are pages for that many of
    that length, and `memory` (bytes, or a text such as `24GiB`; by default the device's) must hold
    them.
    `drafts` is how many drafts a round verifies, by default as many as the block has; `schedule`
    lets the confidence head verify fewer. `table` replaces the routing table that ships.
    `progress` is told of every tensor that is read.

    Raises:
        dspark.Refused: by the ID of a rule; before a weight is read, unless it is about a value.
        InvalidRequest: `drafts` is more than the draft's block holds.
        ValueError: an argument means nothing.
    """
    return prepare(target, draft, **options).load(progress)


def prepare(
    target: str | os.PathLike[str],
    draft: str | os.PathLike[str] | None = None,
    *,
    device: Device = "cpu",
    dtype: Dtype | None = None,
    max_length: int | None = None,
    max_batch: int = 8,
    memory: int | str | None = None,
    drafts: int | None = None,
    schedule: ConfidenceSchedule | None = None,
    table: Table | None = None,
) -> Prepared:
    """All that `open_engine` does before it reads a weight; arguments and exceptions are its."""
    computed_in = dtype or chosen_dtype(device)
    memory = device_memory(device) if memory is None else memory
    plan: LoadPlan | TargetPlan
    if draft is None:
        plan = dspark.plan_target(
            target,
            device=device,
            dtype=computed_in,
            max_seq=max_length,
            batch=max_batch,
            memory=memory,
            local=True,
            table=table,
        )
    else:
        plan = dspark.plan(
            draft,
            target=target,
            device=device,
            dtype=computed_in,
            max_seq=max_length,
            batch=max_batch,
            memory=memory,
            local=True,
            table=table,
        )
    check_device(device, computed_in, known(plan.decision))
    if device == "cuda":
        _check_kernels(plan, memory)
    _check_drafts(drafts, plan)
    folder, about_target = target_folder(plan), known(plan.target_decision)
    vocab_size = plan.target.value("vocab_size")
    # INVARIANT: the contract's type for it.
    assert isinstance(vocab_size, int)
    tokenizer = read_tokenizer(folder, vocab_size, about_target)
    eos_token_ids = read_eos_token_ids(folder, vocab_size, about_target)
    config = _engine_config(plan, drafts, schedule, eos_token_ids)
    return Prepared(plan, config, tokenizer, device, computed_in)


def _engine_config(
    plan: LoadPlan | TargetPlan,
    drafts: int | None,
    schedule: ConfidenceSchedule | None,
    eos_token_ids: frozenset[int],
) -> EngineConfig:
    from dspark.runtime.engine_config import EngineConfig

    # A block reaches past the last token that a request may have.
    pages_each = -(-(plan.max_seq + _block(plan)) // _PAGE_SIZE)
    return EngineConfig(
        max_length=plan.max_seq,
        pages=plan.batch * pages_each,
        page_size=_PAGE_SIZE,
        max_batch=plan.batch,
        drafts=drafts,
        schedule=schedule,
        eos_token_ids=eos_token_ids,
    )


def _block(plan: LoadPlan | TargetPlan) -> int:
    if isinstance(plan, dspark.TargetPlan):
        return 0
    size = plan.draft.value("block_size")
    # INVARIANT: the contract's type for it.
    assert isinstance(size, int)
    return size


def _check_kernels(plan: LoadPlan | TargetPlan, memory: int | str | None) -> None:
    """Whether there are kernels for these sizes, and memory for what they work in."""
    from dspark.budget import parse_size
    from dspark.runtime.device_round.limits import sizes_without_kernel, working_bytes
    from dspark.runtime.models.from_plan import draft_config, target_config

    draft = None if isinstance(plan, dspark.TargetPlan) else draft_config(plan)
    target = target_config(plan.target)
    for found in sizes_without_kernel(target, draft, plan.batch, block_shared_memory()):
        raise dspark.load_refusal(known(plan.decision), found.name, **found.values)
    available = parse_size(memory) if isinstance(memory, str) else memory
    needed = plan.bytes.total + working_bytes(target, draft, plan.batch, plan.max_seq)
    if available is not None and available < needed:
        values = {"gpu": "cuda", "available": available, "needed": needed}
        raise dspark.load_refusal(known(plan.decision), "gpu-memory-short", **values)


def _check_drafts(drafts: int | None, plan: LoadPlan | TargetPlan) -> None:
    """What the engine checks too, but only once it is there."""
    most = 0 if isinstance(plan, dspark.TargetPlan) else plan.num_speculative_tokens.most
    if drafts is not None:
        check_drafts(drafts, most)
