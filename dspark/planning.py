"""From a draft and a target to a load plan, or to the refusal of the first stage that objects.

The draft is judged first, as far as it goes alone; only then is the target opened. So a draft that
is refused is refused alike beside every target, and the one message is about the cheapest fault.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from dspark.budget import Budget, Stored, budget, shown_size, stored, stored_by_config
from dspark.canonical import DRAFTS
from dspark.checked import Draft, observed_config, read_draft, refuse_if
from dspark.compiled import Table
from dspark.contract import Finding
from dspark.decision import Decision
from dspark.decision_log import announce, announcing_refusals
from dspark.findings import finding
from dspark.kernel_sizes import Values, size_findings
from dspark.match_tensors import EMBEDDING, HEAD, integer, needed_shapes
from dspark.pairing import pair
from dspark.routing import Download, default_table
from dspark.source import Source
from dspark.target import Target, TargetWeights, read_target, read_weights
from dspark.terms import Terms, read_terms
from dspark.verdict import Verdict

if TYPE_CHECKING:
    from dspark.load_plan import Device, Dtype, LoadPlan, TargetPlan


POSITIONS = "max_position_embeddings"


@announcing_refusals
def plan(
    draft: str | os.PathLike[str],
    *,
    target: str | os.PathLike[str],
    device: Device = "cuda",
    dtype: Dtype | None = None,
    max_seq: int | None = None,
    batch: int = 1,
    memory: int | str | None = None,
    local: bool = False,
    table: Table | None = None,
    download: Download | None = None,
) -> LoadPlan:
    """What it takes to run `draft` on `target`: a frozen plan, from configs and headers alone.

    `draft` and `target` are a folder, a config.json or a repo id; the target's weights need not be
    there, and are checked where they are. `local` asks for both models' weights in a local folder,
    as a loader needs them. `max_seq` is the longest sequence served, by default as far as the
    target's positions go; `batch` how many at a time. `memory` is in bytes, or a text such as
    `24GiB`; by default what the machine has on a CPU, and unknown on a GPU. `dtype` is `float32` or
    `bfloat16`; by default that is float32 on a CPU, and on a GPU the format of each file.

    Raises `Refused` with a `Verdict`; ValueError for an argument that means nothing; `TableError`
    for a `table` with a lane that has no contract.
    """
    terms = read_terms(device, dtype, max_seq, batch, memory)
    # Here and not above: pydantic takes as long to import as a whole route.
    from dspark.assemble import assemble

    table = table or default_table()
    checked = read_draft(table, draft, download=download)
    if local:
        _require_local(checked.decision, checked.place)
    model = read_target(table, target, download=download)
    mismatches, unverified = pair(checked, model)
    warnings = [*checked.warnings, *unverified]
    refuse_if(checked.decision, "pairing", mismatches, warnings)
    weights = _target_weights(model, local)
    warnings += model.canonical.warnings + (weights.matched.warnings if weights else ())
    length = _length(checked.decision, model, terms, warnings)
    drafts = integer(checked.canonical.values, DRAFTS)
    needed = budget(
        checked.canonical.values,
        model.canonical.values,
        draft_stored=stored(checked.matched.tensors.values(), device, dtype),
        target_stored=_target_stored(model, weights, terms),
        drafts=drafts,
        draft_positions=min(length, integer(checked.canonical.values, POSITIONS)),
        max_seq=length,
        batch=batch,
    )
    findings = _without_kernel(terms, model, _draft_sizes(checked, model))
    if terms.memory is not None and needed.total > terms.memory:
        over = _over_budget(needed, terms.memory, length)
        findings.append(finding("over-budget", needed=needed.total, **over))
    refuse_if(checked.decision, "budget", findings, warnings)
    announce(Verdict(checked.decision, stage="budget", warnings=warnings))
    return assemble(
        checked,
        model,
        weights,
        needed,
        warnings=warnings,
        drafts=drafts,
        device=device,
        dtype=dtype,
        max_seq=length,
        memory=terms.memory,
    )


def plan_target(
    target: str | os.PathLike[str],
    *,
    device: Device = "cuda",
    dtype: Dtype | None = None,
    max_seq: int | None = None,
    batch: int = 1,
    memory: int | str | None = None,
    local: bool = False,
    table: Table | None = None,
    download: Download | None = None,
) -> TargetPlan:
    """What it takes to run `target` without a draft; held against the same contract as in a pair.

    Arguments and exceptions are those of `plan`.
    """
    terms = read_terms(device, dtype, max_seq, batch, memory)
    from dspark.assemble import assemble_target

    model = read_target(table or default_table(), target, download=download)
    weights = _target_weights(model, local)
    warnings = [*model.canonical.warnings, *(weights.matched.warnings if weights else ())]
    length = _length(model.decision, model, terms, warnings)
    needed = budget(
        None,
        model.canonical.values,
        target_stored=_target_stored(model, weights, terms),
        drafts=0,
        draft_positions=0,
        max_seq=length,
        batch=batch,
    )
    findings = _without_kernel(terms, model, None)
    if terms.memory is not None and needed.total > terms.memory:
        over = _over_budget(needed, terms.memory, length)
        findings.append(finding("over-budget", alone=needed.total, **over))
    refuse_if(model.decision, "budget", findings, warnings)
    return assemble_target(
        model,
        weights,
        needed,
        warnings=warnings,
        device=device,
        dtype=dtype,
        max_seq=length,
        memory=terms.memory,
    )


def _require_local(decision: Decision, place: Source) -> None:
    if place.folder is None:
        reason = "they are on the hub, and only a local folder can be loaded"
        remedy = "download the repo with `hf download`, and give the folder it prints"
        absent = finding("weights-missing", reason=reason, remedy=remedy)
        refuse_if(decision, "tensors", [absent])


def _target_weights(model: Target, local: bool) -> TargetWeights | None:
    if local:
        _require_local(model.decision, model.place)
    weights = read_weights(model)
    if local and weights is None:
        reason = "the target's folder has only its config"
        remedy = "download the target's weights into its folder"
        absent = finding("weights-missing", reason=reason, remedy=remedy)
        refuse_if(model.decision, "tensors", [absent])
    return weights


def _length(decision: Decision, model: Target, terms: Terms, warnings: list[Finding]) -> int:
    longest = integer(model.canonical.values, POSITIONS)
    if terms.max_seq is not None and terms.max_seq > longest:
        beyond = finding("max-seq-too-long", got=terms.max_seq, expected=longest)
        refuse_if(decision, "budget", [beyond], warnings)
    return terms.max_seq or longest


def _target_stored(model: Target, weights: TargetWeights | None, terms: Terms) -> Stored:
    if weights is not None:
        return stored(weights.matched.tensors.values(), terms.device, terms.dtype)
    shapes = needed_shapes(model.contract, model.canonical.values)
    config = observed_config(model.decision)
    return stored_by_config(shapes.values(), config, terms.device, terms.dtype)


def _draft_sizes(draft: Draft, model: Target) -> Values:
    """A draft's config with the target's rows, whatever it says itself, of what the two share."""
    rows = model.canonical.values["vocab_size"]
    counts = {EMBEDDING: "vocab_size", HEAD: "draft_vocab_size"}
    return {**draft.canonical.values, **{counts[name]: rows for name in draft.matched.shared}}


def _without_kernel(terms: Terms, model: Target, draft: Values | None) -> list[Finding]:
    if terms.device != "cuda":
        return []
    return list(size_findings(model.canonical.values, draft, terms.batch))


def _over_budget(needed: Budget, available: int, max_seq: int) -> dict[str, object]:
    parts = {
        "weights": needed.draft_weights + needed.target_weights,
        f"caches of {needed.batch} x {max_seq} tokens": needed.draft_kv + needed.target_kv,
        "logits": needed.logits,
    }
    longest = needed.longest_within(available)
    remedy = f"lower --max-seq to {longest}, or give more memory"
    if longest < 1:
        remedy = "give more memory, or take smaller models: no length fits"
    breakdown = ", ".join(f"{name} {shown_size(size)}" for name, size in parts.items())
    return {"available": available, "breakdown": breakdown, "remedy": remedy}
