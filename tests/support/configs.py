"""Configs that tests start from, written out so that each test shows only what it changes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

Config = dict[str, Any]

BASE: Config = {
    "architectures": ["Qwen3DSparkModel"],
    "model_type": "qwen3",
    "dtype": "bfloat16",
    "block_size": 7,
    "mask_token_id": 151669,
    "target_layer_ids": [1, 9, 17, 25, 33],
    "num_target_layers": 36,
    "num_anchors": 512,
    "markov_rank": 256,
    "markov_head_type": "vanilla",
    "enable_confidence_head": True,
    "confidence_head_with_markov": True,
    "hidden_size": 4096,
    "intermediate_size": 12288,
    "num_hidden_layers": 5,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 151936,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-06,
    "attention_bias": False,
    "attention_dropout": 0.0,
    "max_position_embeddings": 40960,
    "rope_parameters": {"rope_theta": 1000000, "rope_type": "default"},
    "layer_types": ["full_attention"] * 5,
    "sliding_window": None,
    "use_sliding_window": False,
    "max_window_layers": 36,
    "tie_word_embeddings": False,
    "bos_token_id": 151643,
    "eos_token_id": 151645,
    "pad_token_id": None,
    "initializer_range": 0.02,
    "use_cache": True,
}
"""The official 8B draft's values (deepseek-ai/dspark_qwen3_8b_block7), as one flat config."""

EAGLE3: Config = {"architectures": ["Qwen3Eagle3Model"], "model_type": "qwen3"}
"""Refused by R028."""


def with_keys(config: Config, **changes: Any) -> Config:
    """A copy of `config` with some keys set."""
    return {**config, **changes}


def without(config: Config, *keys: str) -> Config:
    """A copy of `config` without some keys, each of which it must have."""
    assert set(keys) <= set(config)
    return {key: value for key, value in config.items() if key not in keys}


class Routed(NamedTuple):
    """What the command line said of one checkpoint."""

    code: int
    name: str
    lane: str | None
    message: str
    line: dict[str, Any]


def write_config(folder: Path, config: Config | str | bytes) -> Path:
    """Makes `folder` a checkpoint folder with this config.json."""
    folder.mkdir(parents=True, exist_ok=True)
    data = config if isinstance(config, str | bytes) else json.dumps(config)
    file = folder / "config.json"
    file.write_bytes(data if isinstance(data, bytes) else data.encode())
    return folder


def run(
    *arguments: str | Path, stdin: bytes = b"", **environment: str
) -> subprocess.CompletedProcess[bytes]:
    """`python -m dspark.route` in a process of its own, as a user runs it."""

    return subprocess.run(
        [sys.executable, "-m", "dspark.route", *map(str, arguments)],
        input=stdin,
        capture_output=True,
        check=False,
        env={**os.environ, **environment},
    )


def routed(decision: dict[str, Any], code: int = -1) -> Routed:
    """The parts of one `--json` object that tests ask about."""
    inner = decision["decision"]
    message = inner["refusal"]["message"] if inner["refusal"] else ""
    return Routed(code, inner["name"], inner["lane"], message, decision)
