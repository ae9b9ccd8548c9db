"""Refusals of what only a loader can find out, after the plan: with an ID, like all the others."""

from __future__ import annotations

from dspark.decision import Decision
from dspark.errors import Refused
from dspark.findings import finding
from dspark.verdict import Verdict

_STAGES = {
    "shard-unreadable": "tensors",
    "tensor-not-finite": "tensors",
    "tokenizer-missing": "tensors",
    "target-file-invalid": "tensors",
    "device-unavailable": "budget",
    "driver-too-old": "budget",
    "unsupported-gpu": "budget",
    "kernels-not-compiled": "budget",
    "gpu-memory-short": "budget",
    "size-without-kernel": "budget",
}
"""What a loader may find, and the stage that it is a part of."""


def load_refusal(decision: Decision, name: str, /, **values: object) -> Refused:
    """The `Refused` that a loader raises for what it found in the checkpoint of `decision`.

    `name` is that of a finding in `rules/findings.yaml`, and `values` fill its message.

    Raises ValueError for a finding that is not a loader's.
    """
    if name not in _STAGES:
        raise ValueError(f"`{name}` is not for a loader to find; it finds {', '.join(_STAGES)}")
    found = finding(name, **values)
    return Refused(Verdict(decision, stage=_STAGES[name], findings=[found]))
