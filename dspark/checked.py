"""A draft checked as far as it goes without a target: its config, then its tensors.

The order is the order of what is read, so that nothing cheap is found out late: the config is
refused before a header is read, and headers before the values of a vocabulary map.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import BinaryIO, NamedTuple, NoReturn

from dspark.canonical import canonicalise
from dspark.compiled import Table
from dspark.contract import Canonical, Contract, Finding
from dspark.contract_reader import load_contract
from dspark.decision import Decision
from dspark.errors import Refused, Unreadable
from dspark.match_tensors import Matched, canonical_names, match
from dspark.routing import Download, examine
from dspark.source import Source
from dspark.tensors import Tensors
from dspark.verdict import Verdict
from dspark.weights import Weights


class Draft(NamedTuple):
    """A draft that a lane takes and whose own files are in order."""

    decision: Decision
    place: Source
    contract: Contract
    canonical: Canonical
    found: Tensors
    matched: Matched

    @property
    def warnings(self) -> tuple[Finding, ...]:
        return self.canonical.warnings + self.matched.warnings


def check_source(
    table: Table,
    source: str | os.PathLike[str],
    *,
    stdin: BinaryIO | None = None,
    download: Download | None = None,
) -> Decision:
    """The `Verdict` on a draft after its config and tensors were checked. Never raises."""
    try:
        draft = read_draft(table, source, stdin=stdin, download=download)
    except Refused as refusal:
        return refusal.decision
    return Verdict(draft.decision, stage="tensors", warnings=draft.warnings)


def read_draft(
    table: Table,
    source: str | os.PathLike[str],
    *,
    stdin: BinaryIO | None = None,
    download: Download | None = None,
) -> Draft:
    """The draft at `source`. Raises `Refused` with the `Verdict` of the stage that objects."""
    decision, place = examine(table, source, stdin=stdin, download=download)
    if decision.lane is None or place is None:
        raise Refused(Verdict(decision, stage=decision.stage, warnings=decision.warnings))
    contract = load_contract(decision.lane)
    config = observed_config(decision)
    canonical = canonicalise(contract, config, decision.name, None)
    refuse_if(decision, "check", canonical.findings, canonical.warnings)
    weights = open_weights(decision, place)
    if any(key.default and key.default.tensor for key in contract.keys.values()):
        names = frozenset(canonical_names(contract, weights.found.tensors)[0])
        canonical = canonicalise(contract, config, decision.name, names)
        refuse_if(decision, "check", canonical.findings, canonical.warnings)
    matched = match(contract, canonical, weights.found, weights.read_integers)
    refuse_if(decision, "tensors", matched.findings, canonical.warnings + matched.warnings)
    return Draft(decision, place, contract, canonical, weights.found, matched)


def observed_config(decision: Decision) -> Mapping[str, object]:
    """The config a decision was made from."""
    assert decision.observation is not None  # INVARIANT: a lane is decided from an observation
    return decision.observation.config


def open_weights(decision: Decision, place: Source) -> Weights:
    """The weights beside a config. Raises `Refused` where their hub does not answer."""
    try:
        return Weights(place)
    except Unreadable as problem:
        refuse_unreadable(decision, problem)


def refuse_unreadable(decision: Decision, problem: Unreadable) -> NoReturn:
    """Raises `Refused` for a checkpoint whose config could be read and the rest could not."""
    unread = decision.table.unreadable(problem, decision.source, decision.observation)
    raise Refused(Verdict(unread, stage=unread.stage)) from None


def refuse_if(
    decision: Decision,
    stage: str,
    findings: Sequence[Finding],
    warnings: Sequence[Finding] = (),
) -> None:
    """Raises `Refused` with all of a stage's findings, if there are any."""
    if findings:
        raise Refused(Verdict(decision, stage=stage, findings=findings, warnings=warnings))
