"""A model's configuration out of a plan, where every key has a value and none is guessed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dspark.runtime.backends.rope import Rope
from dspark.runtime.models.config import DraftConfig, TargetConfig

if TYPE_CHECKING:
    from dspark import LoadPlan
    from dspark.load_plan import Model

Values = Mapping[str, Any]

_DECODER = (
    *("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads"),
    *("num_key_value_heads", "head_dim", "vocab_size", "rms_norm_eps", "layer_types"),
    *("sliding_window", "attention_bias", "tie_word_embeddings", "max_position_embeddings"),
)
_DRAFT = (
    *("draft_vocab_size", "target_hidden_size", "block_size", "mask_token_id"),
    *("target_layer_ids", "markov_rank", "enable_confidence_head"),
    *("confidence_head_with_markov", "sample_from_anchor", "sliding_window_non_causal"),
)
_EMBEDDING, _HEAD = "embed_tokens.weight", "lm_head.weight"


def target_config(model: Model) -> TargetConfig:
    """The configuration of a plan's target."""
    values = _values(model)
    return TargetConfig(**_taken(values, _DECODER), rope=_rope(values))


def draft_config(plan: LoadPlan) -> DraftConfig:
    """The configuration of a plan's draft.

    Of what it shares with its target it has the target's rows, whatever its config says of them.
    """
    values = _values(plan.draft)
    rows = plan.target.value("vocab_size")
    if _EMBEDDING in plan.shared:
        values["vocab_size"] = rows
    if _HEAD in plan.shared:
        values["draft_vocab_size"] = rows
    # A lane without a Markov head has no key for the kind of it.
    kind: Any = values["markov_head_type"] if values["markov_rank"] else "none"
    taken = _taken(values, (*_DECODER, *_DRAFT))
    return DraftConfig(**taken, rope=_rope(values), markov_head_type=kind)


def _values(model: Model) -> dict[str, Any]:
    return {key: entry.value for key, entry in model.config.items()}


def _taken(values: Values, keys: tuple[str, ...]) -> dict[str, Any]:
    return {key: values[key] for key in keys}


def _rope(values: Values) -> Rope:
    if values["rope_type"] == "default":
        return Rope(theta=values["rope_theta"])
    return Rope(
        theta=values["rope_theta"],
        kind=values["rope_type"],
        factor=values["rope_factor"],
        original_max_position_embeddings=values["rope_original_positions"],
        beta_fast=values["rope_beta_fast"],
        beta_slow=values["rope_beta_slow"],
        attention_factor=values["rope_attention_factor"],
    )
