"""What is read of a config.json, told by watching it being read."""

from __future__ import annotations

from typing import Any

import pytest

from dspark.observe import CONFIG_KEYS, observe_config

CONFIGS: list[dict[str, Any]] = [
    {"architectures": ["Qwen3DSparkModel"], "model_type": "qwen3", "markov_rank": 4},
    {"architectures": ["Qwen3DSparkModel"], "dspark_config": {"markov_rank": 4}},
    {"architectures": ["DeepseekV4ForCausalLM"], "dspark_markov_rank": 4},
    {"speculators_model_type": "dspark", "transformer_layer_config": {"model_type": "qwen3"}},
    {"model_type": "qwen3", "block_size": 7},
    {},
]


class Watched(dict[str, Any]):
    """A config that notes which of its keys are asked for."""

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__(config)
        self.asked: set[str] = set()

    def get(self, key: str, default: Any = None) -> Any:
        self.asked.add(key)
        return super().get(key, default)

    def __getitem__(self, key: str) -> Any:
        self.asked.add(key)
        return super().__getitem__(key)


def asked(config: dict[str, Any]) -> set[str]:
    watched = Watched(config)
    observe_config(watched)
    return watched.asked


@pytest.mark.parametrize("config", CONFIGS)
def test_no_other_key_is_read(config: dict[str, Any]) -> None:
    assert set() == asked(config) - CONFIG_KEYS


def test_each_of_them_is_read_of_some_config() -> None:
    assert set().union(*map(asked, CONFIGS)) == CONFIG_KEYS
