"""The decode runtime: a target and its draft behind an engine that streams tokens.

from dspark.runtime import SamplingParams, open_engine

loaded = open_engine("path/to/target", "path/to/draft", max_length=4096)
prompt = loaded.tokenizer.encode("def read(path):").ids
for event in loaded.engine.stream(prompt, SamplingParams(max_tokens=100, temperature=0.0)):
    print(event.text, end="")

It may import `dspark`, through its public names only; `dspark` never imports it, so that checking a
checkpoint needs no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dspark.runtime.async_engine import AsyncEngine
    from dspark.runtime.completion import Completion
    from dspark.runtime.confidence import ConfidenceSchedule
    from dspark.runtime.engine import Engine
    from dspark.runtime.engine_config import EngineConfig
    from dspark.runtime.errors import InvalidRequest, NonFiniteLogits, WeightError
    from dspark.runtime.load import Loaded, open_engine
    from dspark.runtime.params import SamplingParams
    from dspark.runtime.request import TokenEvent
    from dspark.runtime.serve.app import create_app
    from dspark.runtime.serve.chat_template import read_chat_template
    from dspark.runtime.serve.settings import ServeSettings

__all__ = [
    "AsyncEngine",
    "Completion",
    "ConfidenceSchedule",
    "Engine",
    "EngineConfig",
    "InvalidRequest",
    "Loaded",
    "NonFiniteLogits",
    "SamplingParams",
    "ServeSettings",
    "TokenEvent",
    "WeightError",
    "create_app",
    "open_engine",
    "read_chat_template",
]

# Found on first use: asking for an exception must not import NumPy.
_HOME = {
    "AsyncEngine": "dspark.runtime.async_engine",
    "Completion": "dspark.runtime.completion",
    "ConfidenceSchedule": "dspark.runtime.confidence",
    "Engine": "dspark.runtime.engine",
    "EngineConfig": "dspark.runtime.engine_config",
    "InvalidRequest": "dspark.runtime.errors",
    "Loaded": "dspark.runtime.prepared",
    "NonFiniteLogits": "dspark.runtime.errors",
    "SamplingParams": "dspark.runtime.params",
    "ServeSettings": "dspark.runtime.serve.settings",
    "TokenEvent": "dspark.runtime.request",
    "WeightError": "dspark.runtime.errors",
    "create_app": "dspark.runtime.serve.app",
    "open_engine": "dspark.runtime.load",
    "read_chat_template": "dspark.runtime.serve.chat_template",
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
