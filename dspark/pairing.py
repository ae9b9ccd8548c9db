"""Whether a draft belongs to a target: by the sizes both declare, since the files fit any."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from dspark.checked import Draft, observed_config
from dspark.contract import Finding, Value
from dspark.demands import run_checks
from dspark.findings import finding
from dspark.match_tensors import EMBEDDING, HEAD, ID_MAP, integer
from dspark.target import Target


def pair(draft: Draft, target: Target) -> tuple[list[Finding], list[Finding]]:
    """What keeps the two from working together, and what could not be verified (warnings)."""
    findings = run_checks(
        draft.contract.pairing,
        {**draft.canonical.values, "shared": draft.matched.shared},
        observed_config(draft.decision),
        target.canonical.values,
        origins=draft.canonical.origins,
    )
    findings += _vocabulary(draft, target.canonical.values)
    return findings, list(_unverified(draft, target.canonical.values))


def _vocabulary(draft: Draft, target: Mapping[str, Value]) -> Iterator[Finding]:
    """Ids that one of the two has and the other's tables do not reach.

    The draft's embedding and its first Markov table are indexed by target ids, its head and its
    second table by draft ids. Rows beyond the target's are padding, which is never proposed.
    """
    values, matched = draft.canonical.values, draft.matched
    rows, table = integer(target, "vocab_size"), integer(values, "vocab_size")
    drafted = integer(values, "draft_vocab_size")
    if HEAD not in matched.shared and drafted < rows and ID_MAP not in matched.tensors:
        yield finding("tensor-missing", tensor=ID_MAP, expected=[drafted])
    if _has_markov(values) and matched.shared:
        if table != rows:
            yield _mismatch("vocab_size", table, f"{rows} (its `vocab_size`)")
    elif table < rows and (_has_markov(values) or EMBEDDING not in matched.shared):
        yield _mismatch("vocab_size", table, f"at least {rows} (its `vocab_size`)")


def _has_markov(values: Mapping[str, Value]) -> bool:
    return values["markov_rank"] != 0


def _mismatch(key: str, got: int, expected: str) -> Finding:
    return finding("target-mismatch", key=key, got=got, expected=expected)


def _unverified(draft: Draft, target: Mapping[str, Value]) -> Iterator[Finding]:
    """Equal rows make one vocabulary likely; without them nothing here does."""
    shares_all = {EMBEDDING, HEAD} <= set(draft.matched.shared)
    size, rows = integer(draft.canonical.values, "vocab_size"), integer(target, "vocab_size")
    if size != rows and not shares_all:
        reason = f"the draft has {size} ids and the target {rows}"
        yield finding("tokenizer-unverified", reason=reason)
