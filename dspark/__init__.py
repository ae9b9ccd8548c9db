"""Which lane runs a draft checkpoint, or which rule refuses it, before a weight is read.

import dspark

decision = dspark.route("path/to/checkpoint")    # never raises for what it finds there
decision.lane                                    # "qwen3-dspark", or None
decision.summary()                               # "R028 eagle3: this is an EAGLE-3 draft: ..."

dspark.require_lane("path/to/checkpoint")        # the same, or raises dspark.Refused

plan = dspark.plan("path/to/draft", target="path/to/target", memory="24GiB")    # or raises it
plan.drafts_per_round, plan.bytes.total, plan.draft.tensors["fc.weight"].offset

dspark.on_decision(dspark.JsonlSink("decisions.jsonl"))    # one line for each of the above
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dspark.errors import DsparkError, FailedTests, PackError, Refused, TableError

if TYPE_CHECKING:
    from dspark.compile import compile_table
    from dspark.compiled import Table
    from dspark.decision import Decision, Evidence, Refusal
    from dspark.decision_log import on_decision
    from dspark.diagnostics import Diagnostic
    from dspark.handed_over import HandOff
    from dspark.handoff import drafts_in_blocks, engine_warning, hand_off
    from dspark.jsonl import JsonlSink
    from dspark.load_plan import LoadPlan, TargetPlan
    from dspark.loader_findings import load_refusal
    from dspark.planning import plan, plan_target
    from dspark.reload import ReloadingTable
    from dspark.routing import require_lane, route
    from dspark.verdict import Verdict

__version__ = "0.1.0"

__all__ = [
    "Decision",
    "Diagnostic",
    "DsparkError",
    "Evidence",
    "FailedTests",
    "HandOff",
    "JsonlSink",
    "LoadPlan",
    "PackError",
    "Refusal",
    "Refused",
    "ReloadingTable",
    "Table",
    "TableError",
    "TargetPlan",
    "Verdict",
    "__version__",
    "compile_table",
    "drafts_in_blocks",
    "engine_warning",
    "hand_off",
    "load_refusal",
    "on_decision",
    "plan",
    "plan_target",
    "require_lane",
    "route",
]

# Found on first use: a service that only catches `dspark.Refused` must not pay for the compiler.
_HOME = {
    "Decision": "dspark.decision",
    "Diagnostic": "dspark.diagnostics",
    "Evidence": "dspark.decision",
    "HandOff": "dspark.handed_over",
    "JsonlSink": "dspark.jsonl",
    "LoadPlan": "dspark.load_plan",
    "Refusal": "dspark.decision",
    "ReloadingTable": "dspark.reload",
    "Table": "dspark.compiled",
    "TargetPlan": "dspark.load_plan",
    "Verdict": "dspark.verdict",
    "compile_table": "dspark.compile",
    "drafts_in_blocks": "dspark.handoff",
    "engine_warning": "dspark.handoff",
    "hand_off": "dspark.handoff",
    "load_refusal": "dspark.loader_findings",
    "on_decision": "dspark.decision_log",
    "plan": "dspark.planning",
    "plan_target": "dspark.planning",
    "require_lane": "dspark.routing",
    "route": "dspark.routing",
}


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module `dspark` has no attribute `{name}`")
    from importlib import import_module

    value: object = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
