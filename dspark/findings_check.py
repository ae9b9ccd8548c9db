"""Whether the findings' messages can be told apart, and whether anything reports each of them."""

from __future__ import annotations

import os
from collections.abc import Sequence

from yaml.nodes import MappingNode

from dspark.analyse import prove_messages
from dspark.contract import Contract
from dspark.diagnostics import Report
from dspark.document import Document
from dspark.findings import FINDINGS, NAME, Entry, Form, read_findings
from dspark.handoff_check import named_findings
from dspark.handoff_reader import handoff_table
from dspark.rule import Rule

RAISED = frozenset(
    {
        *("missing-key", "bad-type", "out-of-range", "conflicting-keys", "inconsistent-config"),
        *("weights-missing", "shard-missing", "shard-truncated", "shard-trailing-bytes"),
        *("shard-corrupt", "shard-is-lfs-pointer", "shard-unreadable", "index-invalid"),
        *("tensor-missing", "tensor-unexpected", "tensor-shape", "tensor-dtype"),
        *("tensor-duplicate", "tensor-value", "tensor-too-large"),
        *("target-mismatch", "unsupported-target", "target-is-a-draft", "over-budget"),
        *("max-seq-too-long", "device-unavailable"),
        *("driver-too-old", "unsupported-gpu", "kernels-not-compiled", "gpu-memory-short"),
        "size-without-kernel",
        *("tensor-not-finite", "tokenizer-missing", "target-file-invalid"),
        *("handoff-not-known", "handoff-tokens-unstated", "handoff-too-many-tokens"),
        *("handoff-target-apart", "handoff-target-missing", "handoff-heads-do-not-divide"),
        *("handoff-method-differs", "handoff-version-unknown"),
        *("ignored-tensor", "tokenizer-unverified", "unread-key", "tie-flag-ignored"),
        "misspelt-key",
    }
)
"""Findings that code reports itself; a check of a contract must name each of the others."""


def prove_findings(contracts: Sequence[Contract]) -> Report:
    """Everything that is wrong with the findings that ship, given the contracts that name them."""
    report = Report()
    document = Document(FINDINGS.read_bytes(), os.fspath(FINDINGS), report)
    prove(document, contracts)
    return report


def is_findings(document: Document) -> bool:
    """Whether `document` holds findings, and not a table of another kind."""
    root = document.root
    pairs = root.value if isinstance(root, MappingNode) else ()
    return any((key.value, value.value) == ("table", "findings") for key, value in pairs)


def prove(document: Document, contracts: Sequence[Contract]) -> None:
    """The same, for a file of findings; what is wrong goes to its report."""
    found = read_findings(document)
    rules = {
        f"{entry.rule_id}{number or ''}": _as_rule(entry, form)
        for entry in found.entries.values()
        for number, form in enumerate(entry.forms)
        if form.message.text
    }
    prove_messages(rules, document.report)
    named = {
        check.finding for contract in contracts for check in (*contract.checks, *contract.pairing)
    }
    named.update(named_findings(handoff_table()))
    for entry in found.entries.values():
        if NAME.fullmatch(entry.name) and entry.name not in named | RAISED:
            document.report.add("unused-finding", entry.place, finding=entry.name)


def _as_rule(entry: Entry, form: Form) -> Rule:
    return Rule(
        *(entry.rule_id, entry.name, (), None, form.message, form.help),
        *(entry.why, (), frozenset(), (), entry.place),
    )
