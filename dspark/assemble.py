"""A pair, or a target, that fits, written down as a load plan."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dspark.budget import Budget
from dspark.checked import Draft
from dspark.contract import Canonical, Contract, Finding
from dspark.load_plan import (
    Bytes,
    ConfigValue,
    Device,
    Dtype,
    LoadPlan,
    Model,
    TargetPlan,
    TensorPlace,
    TokenRange,
    Warned,
    WeightFile,
)
from dspark.match_tensors import Matched
from dspark.target import Target, TargetWeights
from dspark.tensors import Tensors
from dspark.verdict import Verdict


def assemble(
    draft: Draft,
    target: Target,
    weights: TargetWeights | None,
    needed: Budget,
    *,
    warnings: Sequence[Finding],
    drafts: int,
    device: Device,
    dtype: Dtype | None,
    max_seq: int,
    memory: int | None,
) -> LoadPlan:
    """The plan for a pair that passed every stage and needs `needed` bytes."""
    decision = draft.decision
    made = LoadPlan(
        table_version=decision.table_version,
        rule_id=decision.rule_id,
        rule_name=decision.name,
        lane=draft.contract.name,
        draft=_model(
            decision.source,
            draft.place.folder,
            draft.contract,
            draft.canonical,
            (draft.found, draft.matched),
        ),
        target=_target(target, weights),
        shared=draft.matched.shared,
        tied=dict(draft.matched.tied),
        drafts_per_round=drafts,
        num_speculative_tokens=TokenRange(least=1, most=drafts),
        device=device,
        dtype=dtype,
        batch=needed.batch,
        max_seq=max_seq,
        draft_positions=needed.draft_positions,
        bytes=_bytes(needed, weights is not None),
        memory=memory,
        fits=None if memory is None else needed.total <= memory,
        warnings=_warned(warnings),
    )
    verdict = Verdict(decision, stage="budget", warnings=warnings)
    return made.decided_by(verdict, target.decision)


def assemble_target(
    target: Target,
    weights: TargetWeights | None,
    needed: Budget,
    *,
    warnings: Sequence[Finding],
    device: Device,
    dtype: Dtype | None,
    max_seq: int,
    memory: int | None,
) -> TargetPlan:
    """The plan for a target alone."""
    made = TargetPlan(
        table_version=target.decision.table_version,
        target=_target(target, weights),
        device=device,
        dtype=dtype,
        batch=needed.batch,
        max_seq=max_seq,
        bytes=_bytes(needed, weights is not None),
        memory=memory,
        fits=None if memory is None else needed.total <= memory,
        warnings=_warned(warnings),
    )
    return made.decided_by(target.decision, target.decision)


def _warned(warnings: Sequence[Finding]) -> tuple[Warned, ...]:
    return tuple(
        Warned(rule_id=each.rule_id, name=each.name, message=each.message, help=each.help)
        for each in warnings
    )


def _target(target: Target, weights: TargetWeights | None) -> Model:
    return _model(
        target.decision.source, target.place.folder, target.contract, target.canonical, weights
    )


def _bytes(needed: Budget, from_headers: bool) -> Bytes:
    return Bytes(
        draft_weights=needed.draft_weights,
        target_weights=needed.target_weights,
        target_weights_from="headers" if from_headers else "config",
        draft_kv_per_token=needed.draft_kv_per_token,
        target_kv_per_token=needed.target_kv_per_token,
        draft_kv=needed.draft_kv,
        target_kv=needed.target_kv,
        logits=needed.logits,
        total=needed.total,
    )


def _model(
    source: str,
    folder: Path | None,
    contract: Contract,
    canonical: Canonical,
    weights: tuple[Tensors, Matched] | None,
) -> Model:
    found, matched = weights or (None, None)
    return Model(
        source=source,
        folder=None if folder is None else str(folder),
        implementation=contract.model,
        config={
            key: ConfigValue.model_validate({"value": value, "origin": canonical.origins[key]})
            for key, value in canonical.values.items()
        },
        tensors={
            name: TensorPlace(
                file=info.file,
                name=info.name,
                dtype=info.dtype,
                shape=info.shape,
                offset=info.start,
                nbytes=info.nbytes,
            )
            for name, info in (matched.tensors if matched else {}).items()
        },
        files=tuple(
            WeightFile(name=name, nbytes=size) for name, size in (found.files if found else ())
        ),
    )
