"""The model a draft is to serve: of a family this runtime decodes, or refused by its family."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NamedTuple

from dspark.canonical import canonicalise
from dspark.checked import observed_config, open_weights, refuse_if
from dspark.compiled import Table
from dspark.contract import Canonical, Contract, Finding, TargetContract
from dspark.contract_reader import load_target_contract
from dspark.decision import Decision
from dspark.errors import Refused
from dspark.findings import finding
from dspark.match_tensors import Matched, match
from dspark.messages import quoted
from dspark.routing import Download, examine
from dspark.rule import letter
from dspark.source import Source
from dspark.tensors import Tensors
from dspark.verdict import Verdict

_NOT_A_DRAFT = "not-a-draft"
"""The rule of the routing table that knows a model for one."""


class Target(NamedTuple):
    """A target whose config is of a family that is decoded, and is in order."""

    decision: Decision
    place: Source
    contract: Contract
    canonical: Canonical


class TargetWeights(NamedTuple):
    """A target's tensors, where they are there."""

    found: Tensors
    matched: Matched


def read_target(
    table: Table, source: str | os.PathLike[str], *, download: Download | None = None
) -> Target:
    """The target at `source`, from its config alone.

    Raises `Refused` with the target as the source of its verdict: it cannot be read (stage
    `observe`), is no target that is decoded (`pairing`), or its config is wrong (`check`).
    """
    decision, place = examine(table, source, download=download)
    if decision.observation is None or place is None or decision.stage == "observe":
        raise Refused(Verdict(decision, stage=decision.stage, warnings=decision.warnings))
    known = load_target_contract()
    refuse_if(decision, "pairing", tuple(_not_accepted(decision, known)), decision.warnings)
    canonical = canonicalise(known.contract, observed_config(decision), decision.name, None)
    refuse_if(decision, "check", canonical.findings, canonical.warnings)
    return Target(decision, place, known.contract, canonical)


def read_weights(target: Target) -> TargetWeights | None:
    """The target's tensors, or None where its weights are not there.

    Raises `Refused` for weights that are there and are not what its config says.
    """
    if target.place.folder is None and target.place.repo is None:
        return None
    weights = open_weights(target.decision, target.place)
    if weights.absent:
        return None
    matched = match(target.contract, target.canonical, weights.found, weights.read_integers)
    refuse_if(target.decision, "tensors", matched.findings, matched.warnings)
    return TargetWeights(weights.found, matched)


def _not_accepted(decision: Decision, known: TargetContract) -> list[Finding]:
    """Why the checkpoint is no target of the family that is decoded, if it is none."""
    seen = decision.observation
    assert seen is not None  # INVARIANT: `read_target` refuses what could not be read
    names = seen.architectures
    family = next((known.families[name] for name in names if name in known.families), None)
    if family is None and is_a_draft(decision):
        return [finding("target-is-a-draft", key="architectures", got=", ".join(names))]
    if family is None and _is_accepted(decision, known):
        return []
    family = family or _unnamed_family(seen.config, seen.packaging, names)
    key = "architectures" if names != (known.architecture,) else "model_type"
    got = ", ".join(map(quoted, names)) if key == "architectures" else quoted(seen.model_type)
    expected = f"`{known.architecture}` with model_type `{known.model_type}`"
    values = {"key": key, "got": got or "absent", "expected": expected}
    return [finding("unsupported-target", family=family, **values)]


def is_a_draft(decision: Decision) -> bool:
    """Whether the table knows the checkpoint for a draft, one that a lane takes or another."""
    if decision.lane is not None:
        return True
    rule, table = decision.rule, decision.table
    # What is left of the routing refusals is a draft that no lane takes, or nothing known.
    others = letter(rule.id) == "E" or rule is table.default or rule.name == _NOT_A_DRAFT
    return not others and decision.facts.get("packaging") != "gguf"


def _is_accepted(decision: Decision, known: TargetContract) -> bool:
    seen = decision.observation
    return (
        seen is not None
        and seen.architectures == (known.architecture,)
        and seen.model_type == known.model_type
        # Sizes inside it and stale ones beside it would be two models in one config.
        and seen.config.get("text_config") is None
    )


def _unnamed_family(
    config: Mapping[str, object], packaging: str | None, names: tuple[str, ...]
) -> str:
    if packaging == "gguf":
        return "a GGUF file"
    if config.get("text_config") is not None:
        return "a model whose language model is nested in `text_config`"
    return "of a family no rule names" if names else "a model of no declared architecture"
