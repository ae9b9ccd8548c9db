"""Which lane runs a draft checkpoint, or which rule refuses it, before a weight is read.

import dspark

decision = dspark.route("path/to/checkpoint")    # never raises for what it finds there
decision.lane                                    # "qwen3-dspark", or None
decision.summary()                               # "R028 eagle3: this is an EAGLE-3 draft: ..."

dspark.require_lane("path/to/checkpoint")        # the same, or raises dspark.Refused

plan = dspark.plan("path/to/draft", target="path/to/target", memory="24GiB")    # or raises it
plan.drafts_per_round, plan.bytes.total, plan.draft.tensors["fc.weight"].offset
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dspark.errors import DsparkError, Refused, TableError

if TYPE_CHECKING:
    from dspark.compile import compile_table
    from dspark.compiled import Table
    from dspark.decision import Decision, Evidence, Refusal
    from dspark.diagnostics import Diagnostic
    from dspark.load_plan import LoadPlan
    from dspark.planning import plan
    from dspark.routing import require_lane, route
    from dspark.verdict import Verdict

__version__ = "0.1.0"

__all__ = [
    "Decision",
    "Diagnostic",
    "DsparkError",
    "Evidence",
    "LoadPlan",
    "Refusal",
    "Refused",
    "Table",
    "TableError",
    "Verdict",
    "__version__",
    "compile_table",
    "plan",
    "require_lane",
    "route",
]

# Found on first use: a service that only catches `dspark.Refused` must not pay for the compiler.
_HOME = {
    "Decision": "dspark.decision",
    "Diagnostic": "dspark.diagnostics",
    "Evidence": "dspark.decision",
    "LoadPlan": "dspark.load_plan",
    "Refusal": "dspark.decision",
    "Table": "dspark.compiled",
    "Verdict": "dspark.verdict",
    "compile_table": "dspark.compile",
    "plan": "dspark.planning",
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
