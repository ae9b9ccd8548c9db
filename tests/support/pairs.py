"""Small drafts and targets whose sizes all differ, and large ones of true shapes in sparse files.

The shapes are written out here from the published tensor lists, and not from the contracts.
"""

from __future__ import annotations

import json
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tests.support.configs import BASE, Config, with_keys, without, write_config
from tests.support.safetensors_files import declared, encoded, write_sparse

if TYPE_CHECKING:
    from collections.abc import Mapping

Shapes = dict[str, tuple[int, ...]]
CORPUS = Path(__file__).resolve().parent.parent / "corpus"
WEIGHTS = "model.safetensors"

TINY: Config = with_keys(
    BASE,
    block_size=4,
    target_layer_ids=[1, 3, 5],
    num_target_layers=6,
    markov_rank=8,
    hidden_size=64,
    intermediate_size=96,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=128,
    vocab_size=160,
    mask_token_id=150,
    max_position_embeddings=200,
    layer_types=["full_attention"] * 2,
    bos_token_id=151,
    eos_token_id=152,
)
"""A DSpark draft of 2 layers and 3 taps; layers x heads x head_dim is nothing else's size."""

TINY_DFLASH: Config = without(
    with_keys(TINY, markov_rank=0, enable_confidence_head=False),
    "markov_head_type",
    "confidence_head_with_markov",
)

TINY_ZLAB: Config = {
    **without(
        TINY_DFLASH,
        "markov_rank",
        "enable_confidence_head",
        "mask_token_id",
        "target_layer_ids",
        "rope_parameters",
        "num_anchors",
    ),
    "architectures": ["DFlashDraftModel"],
    "dflash_config": {"mask_token_id": 150, "target_layer_ids": [1, 3, 5]},
    "rope_theta": 1000000,
    "rope_scaling": None,
    "tie_word_embeddings": True,
}
"""A DFlash draft that ships neither embedding nor head."""

TINY_TARGET: Config = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "attention_bias": False,
    "head_dim": 80,
    "hidden_act": "silu",
    "hidden_size": 64,
    "intermediate_size": 112,
    "max_position_embeddings": 256,
    "num_attention_heads": 6,
    "num_hidden_layers": 6,
    "num_key_value_heads": 3,
    "rms_norm_eps": 1e-06,
    "rope_theta": 1000000,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "use_sliding_window": False,
    "vocab_size": 160,
}


def corpus(name: str) -> Config:
    """A published config, verbatim."""
    config: Config = json.loads((CORPUS / name / "config.json").read_text(encoding="utf-8"))
    return config


def backbone(
    config: Mapping[str, Any], taps: int, *, own_embedding: bool = True, own_head: bool = True
) -> Shapes:
    """What every block draft has."""
    hidden, vocab = config["hidden_size"], config["vocab_size"]
    shapes: Shapes = {
        "fc.weight": (hidden, taps * hidden),
        "hidden_norm.weight": (hidden,),
        "norm.weight": (hidden,),
    }
    if own_embedding:
        shapes["embed_tokens.weight"] = (vocab, hidden)
    if own_head:
        shapes["lm_head.weight"] = (config.get("draft_vocab_size", vocab), hidden)
    for layer in range(config["num_hidden_layers"]):
        shapes |= layer_shapes(config, f"layers.{layer}.")
    return shapes


def layer_shapes(config: Mapping[str, Any], prefix: str) -> Shapes:
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    width = config["head_dim"]
    query, key = config["num_attention_heads"] * width, config["num_key_value_heads"] * width
    return {
        prefix + "input_layernorm.weight": (hidden,),
        prefix + "post_attention_layernorm.weight": (hidden,),
        prefix + "self_attn.q_proj.weight": (query, hidden),
        prefix + "self_attn.k_proj.weight": (key, hidden),
        prefix + "self_attn.v_proj.weight": (key, hidden),
        prefix + "self_attn.o_proj.weight": (hidden, query),
        prefix + "self_attn.q_norm.weight": (width,),
        prefix + "self_attn.k_norm.weight": (width,),
        prefix + "mlp.gate_proj.weight": (inner, hidden),
        prefix + "mlp.up_proj.weight": (inner, hidden),
        prefix + "mlp.down_proj.weight": (hidden, inner),
    }


def heads(
    config: Mapping[str, Any], *, kind: str = "vanilla", confidence: str = "markov"
) -> Shapes:
    """The Markov head and the confidence head (`markov`, `plain` or none of it)."""
    hidden, vocab = config["hidden_size"], config["vocab_size"]
    rank = (config if "markov_rank" in config else config["dflash_config"])["markov_rank"]
    shapes: Shapes = {
        "markov_head.markov_w1.weight": (vocab, rank),
        "markov_head.markov_w2.weight": (config.get("draft_vocab_size", vocab), rank),
    }
    if kind == "gated":
        shapes["markov_head.gate_proj.weight"] = (rank, hidden + rank)
        shapes["markov_head.gate_proj.bias"] = (rank,)
    if kind == "rnn":
        shapes["markov_head.joint_proj.weight"] = (3 * rank, 2 * rank + hidden)
        shapes["markov_head.joint_proj.bias"] = (3 * rank,)
    if confidence:
        width = hidden + rank if confidence == "markov" else hidden
        shapes["confidence_head.proj.weight"] = (1, width)
        shapes["confidence_head.proj.bias"] = (1,)
    return shapes


def dspark_shapes(config: Mapping[str, Any], taps: int, **heads_of: str) -> Shapes:
    return backbone(config, taps) | heads(config, **heads_of)


def target_shapes(config: Mapping[str, Any]) -> Shapes:
    hidden, vocab = config["hidden_size"], config["vocab_size"]
    shapes: Shapes = {
        "model.embed_tokens.weight": (vocab, hidden),
        "model.norm.weight": (hidden,),
    }
    if not config["tie_word_embeddings"]:
        shapes["lm_head.weight"] = (vocab, hidden)
    for layer in range(config["num_hidden_layers"]):
        shapes |= layer_shapes(config, f"model.layers.{layer}.")
    return shapes


TINY_SHAPES = dspark_shapes(TINY, 3)


def checkpoint(
    folder: Path, config: Config, shapes: Mapping[str, tuple[int, ...]] | None, dtype: str = "BF16"
) -> Path:
    """A checkpoint folder, with one sparse weight file of these shapes if there are any."""
    write_config(folder, config)
    if shapes is not None:
        write_sparse(folder / WEIGHTS, shapes, dtype)
    return folder


def write_published(path: Path, shapes: Mapping[str, tuple[int, ...]]) -> int:
    """A sparse BF16 file laid out to the byte as the safetensors library does; returns its size."""
    header = declared(dict(sorted(shapes.items())))
    text = json.dumps(header, separators=(",", ":")).encode()
    head = encoded(text + b" " * (-len(text) % 8))
    size = len(head) + sum(2 * prod(shape) for shape in shapes.values())
    with path.open("wb") as file:
        file.write(head)
        file.truncate(size)
    return size


def with_dtypes(
    folder: Path,
    config: Config,
    shapes: Mapping[str, tuple[int, ...]],
    dtypes: Mapping[str, str],
    data: Mapping[str, np.ndarray] | None = None,
) -> Path:
    """The same with some tensors of other dtypes, and with the values of some of them."""
    write_config(folder, config)
    header: dict[str, Any] = {}
    body = b""
    for name, shape in shapes.items():
        dtype = dtypes.get(name, "BF16")
        part = declared({name: shape}, dtype)[name]
        assert isinstance(part, dict)
        size = part["data_offsets"][1]
        header[name] = part | {"data_offsets": [len(body), len(body) + size]}
        values = (data or {}).get(name)
        body += bytes(size) if values is None else values.tobytes()
    (folder / WEIGHTS).write_bytes(encoded(header, body))
    return folder
