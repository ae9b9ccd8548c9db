"""What the models need to know of a checkpoint, in canonical keys.

Nothing here has a default that could be wrong: whoever reads the checkpoint decides, by its lane's
contract, what a missing key means.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dspark.runtime.backends.rope import Rope

LayerType = Literal["full_attention", "sliding_attention"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderConfig:
    """The sizes that a stack of Qwen3 decoder layers has, in a target and in a draft alike.

    `layer_types` has one entry per layer; `sliding_window` is how many positions a row of a
    sliding layer sees, its own included.
    """

    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    vocab_size: int
    rms_norm_eps: float
    rope: Rope
    layer_types: tuple[LayerType, ...]
    sliding_window: int | None
    attention_bias: bool
    tie_word_embeddings: bool
    max_position_embeddings: int

    def __post_init__(self) -> None:
        if len(self.layer_types) != self.num_hidden_layers:
            raise ValueError(
                f"`layer_types` has {len(self.layer_types)} entries for"
                f" {self.num_hidden_layers} layers"
            )
        if self.num_attention_heads % self.num_key_value_heads:
            raise ValueError(
                f"{self.num_attention_heads} query heads cannot share"
                f" {self.num_key_value_heads} key heads evenly"
            )
        if "sliding_attention" in self.layer_types and not self.sliding_window:
            raise ValueError("a sliding layer needs a `sliding_window`")

    def window(self, layer: int) -> int | None:
        """How many positions the rows of this layer see, or None for all."""
        return self.sliding_window if self.layer_types[layer] == "sliding_attention" else None


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetConfig(DecoderConfig):
    """A Qwen3ForCausalLM."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftConfig(DecoderConfig):
    """A DSpark or DFlash draft for a Qwen3 target.

    `vocab_size` counts the target ids that the draft's embedding and Markov table know,
    `draft_vocab_size` the rows of its head. `target_layer_ids` are 0-based layers, -1 being the
    embedding; `target_hidden_size` is the width of one tap. `markov_rank` 0 means no Markov head.
    A row of a block sees the whole block in a full layer, and in a sliding one what stands before
    it, unless `sliding_window_non_causal` lets it see as far ahead as back.
    """

    draft_vocab_size: int
    target_hidden_size: int
    block_size: int
    mask_token_id: int
    target_layer_ids: tuple[int, ...]
    markov_rank: int
    markov_head_type: Literal["vanilla", "gated", "rnn", "none"]
    enable_confidence_head: bool
    confidence_head_with_markov: bool
    sample_from_anchor: bool
    sliding_window_non_causal: bool = False
    logit_scale: float = 1.0

    def __post_init__(self) -> None:
        # Without arguments, `super` does not survive the second class that slots=True makes.
        DecoderConfig.__post_init__(self)
        if self.drafts_per_round < 1:
            raise ValueError(f"a block of {self.block_size} holds no draft")
        if (self.markov_rank == 0) != (self.markov_head_type == "none"):
            raise ValueError(
                f"`markov_rank` {self.markov_rank} contradicts"
                f" `markov_head_type` `{self.markov_head_type}`"
            )
        if self.confidence_head_with_markov and not self.markov_rank:
            raise ValueError("`confidence_head_with_markov` needs a Markov head")
        if list(self.target_layer_ids) != sorted({*self.target_layer_ids}):
            raise ValueError(f"`target_layer_ids` {list(self.target_layer_ids)} do not increase")

    @property
    def drafts_per_round(self) -> int:
        """The most drafts that a round can hold: the block, less an anchor that drafts nothing."""
        return self.block_size if self.sample_from_anchor else self.block_size - 1

    @property
    def feature_size(self) -> int:
        """The width of a position's taps, side by side."""
        return len(self.target_layer_ids) * self.target_hidden_size
