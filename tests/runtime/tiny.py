"""Small models with random weights, no two sizes of which are equal, lest one be swapped."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from dspark.runtime.backends.base import Array, Backend, KvStore
from dspark.runtime.backends.rope import Rope
from dspark.runtime.backends.torch_cpu import TorchCpuBackend
from dspark.runtime.engine import Engine
from dspark.runtime.engine_config import EngineConfig
from dspark.runtime.models.block_draft import Anchor, BlockDraft
from dspark.runtime.models.config import DecoderConfig, DraftConfig, TargetConfig
from dspark.runtime.models.qwen3 import Qwen3Target

Tensors = dict[str, torch.Tensor]

TARGET = TargetConfig(
    hidden_size=40,
    intermediate_size=56,
    num_hidden_layers=3,
    num_attention_heads=6,
    num_key_value_heads=2,
    head_dim=12,
    vocab_size=97,
    rms_norm_eps=1e-6,
    rope=Rope(theta=10000.0),
    layer_types=("full_attention",) * 3,
    sliding_window=None,
    attention_bias=False,
    tie_word_embeddings=False,
    max_position_embeddings=512,
)

DRAFT = DraftConfig(
    hidden_size=44,
    intermediate_size=68,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=1,
    head_dim=16,
    vocab_size=97,
    rms_norm_eps=1e-5,
    rope=Rope(theta=5000.0),
    layer_types=("full_attention",) * 2,
    sliding_window=None,
    attention_bias=False,
    tie_word_embeddings=False,
    max_position_embeddings=512,
    draft_vocab_size=97,
    target_hidden_size=40,
    block_size=5,
    mask_token_id=95,
    target_layer_ids=(-1, 0, 2),
    markov_rank=7,
    markov_head_type="vanilla",
    enable_confidence_head=True,
    confidence_head_with_markov=True,
    sample_from_anchor=True,
)

PLAIN_DRAFT = dataclasses.replace(
    DRAFT,
    markov_rank=0,
    markov_head_type="none",
    enable_confidence_head=False,
    confidence_head_with_markov=False,
)


class RandomTensors:
    """Tensors of a seed, with norms around 1 and linears that keep the scale of what they map."""

    def __init__(self, seed: int) -> None:
        self._generator = torch.Generator().manual_seed(seed)
        self.tensors: Tensors = {}

    def matrix(self, name: str, *shape: int, scale: float | None = None) -> None:
        spread = shape[-1] ** -0.5 if scale is None else scale
        self.tensors[name] = torch.randn(shape, generator=self._generator) * spread

    def norm(self, name: str, size: int) -> None:
        self.tensors[name] = 1.0 + 0.2 * torch.randn(size, generator=self._generator)

    def layers(self, config: DecoderConfig, prefix: str) -> None:
        hidden, width = config.hidden_size, config.intermediate_size
        query = config.num_attention_heads * config.head_dim
        key = config.num_key_value_heads * config.head_dim
        for index in range(config.num_hidden_layers):
            name = f"{prefix}layers.{index}."
            self.norm(name + "input_layernorm.weight", hidden)
            self.norm(name + "post_attention_layernorm.weight", hidden)
            self.norm(name + "self_attn.q_norm.weight", config.head_dim)
            self.norm(name + "self_attn.k_norm.weight", config.head_dim)
            for part, rows, columns in (
                ("self_attn.q_proj", query, hidden),
                ("self_attn.k_proj", key, hidden),
                ("self_attn.v_proj", key, hidden),
                ("self_attn.o_proj", hidden, query),
                ("mlp.gate_proj", width, hidden),
                ("mlp.up_proj", width, hidden),
                ("mlp.down_proj", hidden, width),
            ):
                self.matrix(f"{name}{part}.weight", rows, columns)
                if config.attention_bias and "attn" in part:
                    self.matrix(f"{name}{part}.bias", rows, scale=0.3)


def target_tensors(config: TargetConfig = TARGET, seed: int = 1) -> Tensors:
    made = RandomTensors(seed)
    made.matrix("model.embed_tokens.weight", config.vocab_size, config.hidden_size, scale=1.0)
    made.layers(config, "model.")
    made.norm("model.norm.weight", config.hidden_size)
    if not config.tie_word_embeddings:
        made.matrix("lm_head.weight", config.vocab_size, config.hidden_size, scale=0.4)
    return made.tensors


def draft_tensors(config: DraftConfig = DRAFT, seed: int = 2) -> Tensors:
    made = RandomTensors(seed)
    hidden, rank = config.hidden_size, config.markov_rank
    made.matrix("embed_tokens.weight", config.vocab_size, hidden, scale=1.0)
    made.matrix("lm_head.weight", config.draft_vocab_size, hidden, scale=0.4)
    made.matrix("fc.weight", hidden, config.feature_size)
    made.norm("hidden_norm.weight", hidden)
    made.norm("norm.weight", hidden)
    made.layers(config, "")
    if rank:
        made.matrix("markov_head.markov_w1.weight", config.vocab_size, rank, scale=1.0)
        made.matrix("markov_head.markov_w2.weight", config.draft_vocab_size, rank, scale=1.0)
    if config.markov_head_type == "gated":
        made.matrix("markov_head.gate_proj.weight", rank, hidden + rank)
        made.matrix("markov_head.gate_proj.bias", rank, scale=0.5)
    if config.markov_head_type == "rnn":
        made.matrix("markov_head.joint_proj.weight", 3 * rank, 2 * rank + hidden)
        made.matrix("markov_head.joint_proj.bias", 3 * rank, scale=0.5)
    if config.enable_confidence_head:
        width = hidden + (rank if config.confidence_head_with_markov else 0)
        made.matrix("confidence_head.proj.weight", 1, width)
        made.matrix("confidence_head.proj.bias", 1, scale=0.5)
    return made.tensors


def target_model(
    backend: Backend | None = None,
    config: TargetConfig = TARGET,
    tensors: Tensors | None = None,
    *,
    taps: Sequence[int] = DRAFT.target_layer_ids,
    max_length: int = 512,
) -> Qwen3Target:
    return Qwen3Target(
        backend or TorchCpuBackend(),
        config,
        tensors or target_tensors(config),
        max_length=max_length,
        tap_ids=taps,
    )


def draft_model(
    target: Qwen3Target,
    config: DraftConfig = DRAFT,
    tensors: Tensors | None = None,
    *,
    max_length: int = 512,
) -> BlockDraft:
    return BlockDraft(target, config, tensors or draft_tensors(config), max_length=max_length)


def engine_config(**changes: Any) -> EngineConfig:
    settings: dict[str, Any] = {"max_length": 256, "pages": 64, "page_size": 16}
    return EngineConfig(**{**settings, **changes})


def make_engine(
    draft: bool = True,
    *,
    draft_config: DraftConfig = DRAFT,
    decode: Any = None,
    backend: Backend | None = None,
    **changes: Any,
) -> Engine:
    target = target_model(backend, taps=draft_config.target_layer_ids)
    return Engine(
        target,
        draft_model(target, draft_config) if draft else None,
        engine_config(**changes),
        decode,
    )


def random_prompts(count: int, seed: int = 3, longest: int = 40) -> list[list[int]]:
    random = np.random.default_rng(seed)
    return [
        [int(token) for token in random.integers(0, TARGET.vocab_size, random.integers(1, longest))]
        for _ in range(count)
    ]


class ScriptedDraft(BlockDraft):
    """A draft that knows the right tokens and gets as many right as it is told.

    `truth` maps the tokens of a prompt to prompt and true continuation; `right` says, by call
    number and row of the batch, how many drafts are to be accepted. The block is really run, so
    that its rows land in the cache as they would.
    """

    def __init__(self, target: Qwen3Target, right: Any) -> None:
        super().__init__(target, PLAIN_DRAFT, draft_tensors(PLAIN_DRAFT), max_length=512)
        self.right = right
        self.truths: list[list[int]] = []
        self.calls = 0
        self._anchors: Sequence[Anchor] = ()

    def block(self, anchors: Sequence[Anchor], store: KvStore) -> Array:
        self._anchors = anchors
        self.calls += 1
        return super().block(anchors, store)

    def base_logits(self, hidden: Array) -> Array:
        slots = hidden.shape[0] // len(self._anchors)
        logits = torch.zeros(len(self._anchors), slots, TARGET.vocab_size)
        for row, anchor in enumerate(self._anchors):
            truth = self._truth_of(anchor)
            right = self.right(self.calls, row)
            for slot in range(slots):
                place = anchor.position + 1 + slot
                token = truth[place] if place < len(truth) else 0
                if slot >= right:
                    token = (token + 1) % TARGET.vocab_size
                logits[row, slot, token] = 9.0
        return logits.flatten(0, 1)

    def _truth_of(self, anchor: Anchor) -> list[int]:
        fitting = [
            truth
            for truth in self.truths
            if len(truth) > anchor.position and truth[anchor.position] == anchor.token
        ]
        # INVARIANT: a test gives truths that differ at every position it drafts from.
        assert len(fitting) == 1, "the truths of this test are not told apart by their tokens"
        return fitting[0]
