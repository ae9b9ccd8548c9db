"""From a draft and a target to a load plan, or to the refusal of the first stage that objects.

The draft is judged first, as far as it goes alone; only then is the target opened. So a draft that
is refused is refused alike beside every target, and the one message is about the cheapest fault.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Literal

from dspark.budget import (
    Budget,
    Stored,
    budget,
    parse_size,
    physical_memory,
    shown_size,
    stored,
    stored_by_config,
)
from dspark.canonical import DRAFTS
from dspark.checked import observed_config, read_draft, refuse_if
from dspark.compiled import Table
from dspark.contract import Finding
from dspark.findings import finding
from dspark.match_tensors import integer, needed_shapes
from dspark.pairing import pair
from dspark.routing import Download, default_table
from dspark.target import Target, TargetWeights, read_target, read_weights

if TYPE_CHECKING:
    from dspark.load_plan import LoadPlan


POSITIONS = "max_position_embeddings"


def plan(
    draft: str | os.PathLike[str],
    *,
    target: str | os.PathLike[str],
    device: Literal["cuda", "cpu"] = "cuda",
    max_seq: int | None = None,
    batch: int = 1,
    memory: int | str | None = None,
    table: Table | None = None,
    download: Download | None = None,
) -> LoadPlan:
    """What it takes to run `draft` on `target`: a frozen plan, from configs and headers alone.

    `draft` and `target` are a folder, a config.json or a repo id; the target's weights need not be
    there, and are checked where they are. `max_seq` is the longest sequence served, by default as
    far as the target's positions go; `batch` how many at a time. `memory` is in bytes, or a text
    such as `24GiB`; by default what the machine has on a CPU, and unknown on a GPU.

    Raises `Refused` with a `Verdict`; ValueError for an argument that means nothing; `TableError`
    for a `table` with a lane that has no contract.
    """
    available = _memory(memory, device)
    if device not in ("cuda", "cpu"):
        raise ValueError("`device` is `cuda` or `cpu`")
    for name, number in (("max_seq", max_seq), ("batch", batch)):
        if number is not None and (type(number) is not int or number < 1):
            raise ValueError(f"`{name}` is a whole number of 1 or more")
    # Here and not above: pydantic takes as long to import as a whole route.
    from dspark.assemble import assemble

    table = table or default_table()
    checked = read_draft(table, draft, download=download)
    model = read_target(table, target, download=download)
    mismatches, unverified = pair(checked, model)
    warnings = [*checked.warnings, *unverified]
    refuse_if(checked.decision, "pairing", mismatches, warnings)
    weights = read_weights(model)
    warnings += model.canonical.warnings + (weights.matched.warnings if weights else ())
    longest = integer(model.canonical.values, POSITIONS)
    if max_seq is not None and max_seq > longest:
        beyond = finding("max-seq-too-long", got=max_seq, expected=longest)
        refuse_if(checked.decision, "budget", [beyond], warnings)
    length = max_seq or longest
    drafted = min(length, integer(checked.canonical.values, POSITIONS))
    drafts = integer(checked.canonical.values, DRAFTS)
    needed = budget(
        checked.canonical.values,
        model.canonical.values,
        draft_stored=stored(checked.matched.tensors.values(), device),
        target_stored=_target_stored(model, weights, device),
        drafts=drafts,
        draft_positions=drafted,
        max_seq=length,
        batch=batch,
    )
    if available is not None and needed.total > available:
        over = _over_budget(needed, available, length)
        refuse_if(checked.decision, "budget", [over], warnings)
    return assemble(
        checked,
        model,
        weights,
        needed,
        warnings=warnings,
        drafts=drafts,
        device=device,
        max_seq=length,
        memory=available,
    )


def _memory(memory: int | str | None, device: str) -> int | None:
    if memory is None:
        return physical_memory() if device == "cpu" else None
    size = parse_size(memory) if isinstance(memory, str) else memory
    if type(size) is not int or size < 1:
        raise ValueError("`memory` is a number of bytes of 1 or more")
    return size


def _target_stored(model: Target, weights: TargetWeights | None, device: str) -> Stored:
    if weights is not None:
        return stored(weights.matched.tensors.values(), device)
    shapes = needed_shapes(model.contract, model.canonical.values)
    return stored_by_config(shapes.values(), observed_config(model.decision), device)


def _over_budget(needed: Budget, available: int, max_seq: int) -> Finding:
    parts = {
        "weights": needed.draft_weights + needed.target_weights,
        f"caches of {needed.batch} x {max_seq} tokens": needed.draft_kv + needed.target_kv,
        "logits": needed.logits,
    }
    longest = needed.longest_within(available)
    remedy = f"lower --max-seq to {longest}, or give more memory"
    if longest < 1:
        remedy = "give more memory, or take smaller models: no length fits"
    return finding(
        "over-budget",
        needed=needed.total,
        available=available,
        breakdown=", ".join(f"{name} {shown_size(size)}" for name, size in parts.items()),
        remedy=remedy,
    )
