"""The decode runtime: a target and its draft behind an engine that streams tokens.

from dspark.runtime import Engine, EngineConfig, SamplingParams

engine = Engine(target, draft, EngineConfig(max_length=4096, pages=256))
for event in engine.stream(prompt_ids, SamplingParams(max_tokens=100, temperature=0.0)):
    print(event.text, end="")

It may import `dspark`, through its public names only; `dspark` never imports it, so that checking a
checkpoint needs no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dspark.runtime.async_engine import AsyncEngine
    from dspark.runtime.confidence import ConfidenceSchedule
    from dspark.runtime.engine import Completion, Engine
    from dspark.runtime.engine_config import EngineConfig
    from dspark.runtime.errors import InvalidRequest, NonFiniteLogits, WeightError
    from dspark.runtime.params import SamplingParams
    from dspark.runtime.request import TokenEvent

__all__ = [
    "AsyncEngine",
    "Completion",
    "ConfidenceSchedule",
    "Engine",
    "EngineConfig",
    "InvalidRequest",
    "NonFiniteLogits",
    "SamplingParams",
    "TokenEvent",
    "WeightError",
]

# Found on first use: asking for an exception must not import NumPy.
_HOME = {
    "AsyncEngine": "dspark.runtime.async_engine",
    "Completion": "dspark.runtime.engine",
    "ConfidenceSchedule": "dspark.runtime.confidence",
    "Engine": "dspark.runtime.engine",
    "EngineConfig": "dspark.runtime.engine_config",
    "InvalidRequest": "dspark.runtime.errors",
    "NonFiniteLogits": "dspark.runtime.errors",
    "SamplingParams": "dspark.runtime.params",
    "TokenEvent": "dspark.runtime.request",
    "WeightError": "dspark.runtime.errors",
}


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module `dspark.runtime` has no attribute `{name}`")
    from importlib import import_module

    value: object = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
