"""A target and its draft without the loader, which needs packages that a bare machine has not.

Only flat checkpoints are read, whose keys are all there: the trained pair of `examples/tiny`, and
published shapes for which weights are drawn.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dspark.runtime.backends.base import Backend
from dspark.runtime.backends.rope import Rope
from dspark.runtime.engine import Engine
from dspark.runtime.engine_config import EngineConfig
from dspark.runtime.models.block_draft import BlockDraft
from dspark.runtime.models.config import DecoderConfig, DraftConfig, TargetConfig
from dspark.runtime.models.qwen3 import Qwen3Target

if TYPE_CHECKING:
    import torch

REPOSITORY = Path(__file__).parents[2]
TINY = REPOSITORY / "examples" / "tiny"

Values = Mapping[str, Any]
Tensors = Mapping[str, "torch.Tensor"]

_PAGE_SIZE = 32
_DECODER = (
    *("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads"),
    *("num_key_value_heads", "head_dim", "vocab_size", "rms_norm_eps", "attention_bias"),
    *("tie_word_embeddings", "max_position_embeddings"),
)
_DRAFT = (
    *("block_size", "mask_token_id", "markov_rank", "markov_head_type", "enable_confidence_head"),
    "confidence_head_with_markov",
)


@dataclass(frozen=True, slots=True)
class Pair:
    """Two models that are ready to be built, any number of times."""

    target: TargetConfig
    draft: DraftConfig
    target_tensors: Tensors
    draft_tensors: Tensors

    def target_on(self, backend: Backend, length: int, *, taps: bool) -> Qwen3Target:
        """The target, with what the draft listens to if `taps`."""
        ids = self.draft.target_layer_ids if taps else ()
        tensors = self.target_tensors
        return Qwen3Target(backend, self.target, tensors, max_length=length, tap_ids=ids)

    def engine(self, target: Qwen3Target, length: int) -> Engine:
        """An engine of one request of `length` positions; with the draft if `target` has taps."""
        draft = None
        if target.tap_ids:
            draft = BlockDraft(target, self.draft, self.draft_tensors, max_length=length)
        pages = -(-(length + self.draft.block_size) // _PAGE_SIZE)
        return Engine(
            target,
            draft,
            EngineConfig(
                max_length=length,
                pages=pages,
                page_size=_PAGE_SIZE,
                max_batch=1,
                # The same prompt again is to be read again.
                reuse_prefixes=False,
            ),
        )


def trained_pair() -> Pair:
    """The pair in `examples/tiny`."""
    target, draft = (_config_of(TINY / name) for name in ("target", "dspark"))
    return Pair(
        target_config(target),
        draft_config(draft, target["hidden_size"]),
        _read_tensors(TINY / "target" / "model.safetensors"),
        _read_tensors(TINY / "dspark" / "model.safetensors"),
    )


def random_pair(target: TargetConfig, draft: DraftConfig, torch_device: str) -> Pair:
    """Models of these shapes with weights that keep numbers in range; the same each time."""
    import torch

    torch.manual_seed(0)

    def drawn(shapes: Mapping[str, tuple[int, ...]]) -> Tensors:
        made = {}
        for name, shape in shapes.items():
            tensor = torch.empty(shape, dtype=torch.bfloat16, device=torch_device)
            made[name] = tensor.fill_(1.0) if "norm" in name else tensor.normal_(0.0, 0.02)
        return made

    return Pair(target, draft, drawn(dict(target_shapes(target))), drawn(dict(draft_shapes(draft))))


def target_config(values: Values) -> TargetConfig:
    """The configuration in a target's config.json."""
    return TargetConfig(**_decoder(values))


def draft_config(values: Values, target_hidden_size: int) -> DraftConfig:
    """The configuration in the config.json of a flat DSpark draft."""
    return DraftConfig(
        **_decoder(values),
        **{key: values[key] for key in _DRAFT},
        target_layer_ids=tuple(values["target_layer_ids"]),
        draft_vocab_size=values["vocab_size"],
        target_hidden_size=target_hidden_size,
        # What a flat file means by not saying it.
        sample_from_anchor=values.get("sample_from_anchor", True),
    )


def published(name: str) -> Values:
    """A published config."""
    return _config_of(REPOSITORY / "tests" / "corpus" / name)


def target_shapes(config: TargetConfig) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Name and shape of each tensor."""
    table = config.vocab_size, config.hidden_size
    yield "model.embed_tokens.weight", table
    yield from _layers(config, "model.")
    yield "model.norm.weight", (config.hidden_size,)
    if not config.tie_word_embeddings:
        yield "lm_head.weight", table


def draft_shapes(config: DraftConfig) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Name and shape of each tensor of a draft with a vanilla Markov head."""
    hidden, rank = config.hidden_size, config.markov_rank
    yield "embed_tokens.weight", (config.vocab_size, hidden)
    yield "lm_head.weight", (config.draft_vocab_size, hidden)
    yield "fc.weight", (hidden, config.feature_size)
    yield "hidden_norm.weight", (hidden,)
    yield "norm.weight", (hidden,)
    yield from _layers(config, "")
    yield "markov_head.markov_w1.weight", (config.vocab_size, rank)
    yield "markov_head.markov_w2.weight", (config.draft_vocab_size, rank)
    if config.enable_confidence_head:
        width = hidden + (rank if config.confidence_head_with_markov else 0)
        yield "confidence_head.proj.weight", (1, width)
        yield "confidence_head.proj.bias", (1,)


def _layers(config: DecoderConfig, prefix: str) -> Iterator[tuple[str, tuple[int, ...]]]:
    hidden, inner, size = config.hidden_size, config.intermediate_size, config.head_dim
    query, key = config.num_attention_heads * size, config.num_key_value_heads * size
    for index in range(config.num_hidden_layers):
        name = f"{prefix}layers.{index}."
        yield name + "input_layernorm.weight", (hidden,)
        yield name + "post_attention_layernorm.weight", (hidden,)
        yield name + "self_attn.q_norm.weight", (size,)
        yield name + "self_attn.k_norm.weight", (size,)
        yield name + "self_attn.q_proj.weight", (query, hidden)
        yield name + "self_attn.k_proj.weight", (key, hidden)
        yield name + "self_attn.v_proj.weight", (key, hidden)
        yield name + "self_attn.o_proj.weight", (hidden, query)
        yield name + "mlp.gate_proj.weight", (inner, hidden)
        yield name + "mlp.up_proj.weight", (inner, hidden)
        yield name + "mlp.down_proj.weight", (hidden, inner)


def _decoder(values: Values) -> dict[str, Any]:
    layers = values["num_hidden_layers"]
    # What is not the plainest is for the loader.
    assert set(values.get("layer_types", [])) <= {"full_attention"}
    rope = values.get("rope_parameters") or {"rope_theta": values["rope_theta"]}
    assert rope.get("rope_type", "default") == "default"
    return {key: values[key] for key in _DECODER} | {
        "rope": Rope(theta=float(rope["rope_theta"])),
        "layer_types": ("full_attention",) * layers,
        "sliding_window": None,
    }


def _config_of(folder: Path) -> dict[str, Any]:
    values: dict[str, Any] = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    return values


def _read_tensors(path: Path) -> Tensors:
    import torch

    content = bytearray(path.read_bytes())
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        # INVARIANT: the files are ours, and in one format.
        assert entry["dtype"] == "BF16", name
        offset, count = 8 + size + entry["data_offsets"][0], prod(entry["shape"])
        flat = torch.frombuffer(content, dtype=torch.bfloat16, count=count, offset=offset)
        tensors[name] = flat.reshape(entry["shape"])
    return tensors
