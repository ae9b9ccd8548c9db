"""The draft: a block of tokens in one non-causal pass, then a walk along it from left to right.

It has no prompt of its own to read. Each position that the target has processed gives it one row of
context, made from the target's taps; the block attends to that context and to itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from dspark.runtime.backends.base import Array, Backend, HostFloats, HostInts, KvStore
from dspark.runtime.errors import WeightError
from dspark.runtime.models.config import DraftConfig
from dspark.runtime.models.decoder import DecoderLayer, RowPlan
from dspark.runtime.models.markov import MarkovHead, markov_head
from dspark.runtime.models.qwen3 import Qwen3Target
from dspark.runtime.models.rows import Segment, plan_rows, plan_writes
from dspark.runtime.models.weights import Weights

if TYPE_CHECKING:
    from dspark.runtime.backends.base import HostWalk


@dataclass(frozen=True, slots=True)
class Anchor:
    """Where a block starts: the newest token, its position, and the request's page table."""

    token: int
    position: int
    pages: Sequence[int]


class BlockDraft:
    """A DSpark or DFlash draft on the target's device.

    An embedding or a head that the draft's file lacks is the target's. A head that shares the
    target's ids drafts only ids the target has; a smaller one comes with its map `d2t`.

    Raises:
        WeightError: a tensor is missing, left over or of another shape, or the target's taps are
            not as wide or as many as the draft was trained on.
    """

    def __init__(
        self,
        target: Qwen3Target,
        config: DraftConfig,
        tensors: Mapping[str, Any],
        *,
        max_length: int,
    ) -> None:
        if target.config.hidden_size != config.target_hidden_size:
            raise WeightError(
                f"the draft reads taps of {config.target_hidden_size} values, the target's have"
                f" {target.config.hidden_size}"
            )
        if target.tap_ids != config.target_layer_ids:
            raise WeightError(
                f"the draft reads the taps {list(config.target_layer_ids)}, the target gives"
                f" {list(target.tap_ids)}"
            )
        self.backend: Backend = target.backend
        # For what `propose` alone asks; a device that runs whole rounds is never asked it.
        self._walk = cast("HostWalk", target.backend)
        self.config = config
        self.max_length = max_length
        weights = Weights(tensors)
        self._embedding = _embedding(self.backend, target, config, weights)
        self.head = _head(self.backend, target, config, weights)
        self.target_rows = target.config.vocab_size
        self.target_ids = _target_ids(target.config.vocab_size, config, weights)
        hidden = config.hidden_size
        self._fc = self.backend.prepare_linear(
            [weights.take("fc.weight", hidden, config.feature_size)]
        )
        self._context_norm = self.backend.parameter(weights.take("hidden_norm.weight", hidden))
        self._layers = [
            DecoderLayer(self.backend, config, index, weights, "", keeps_context=True)
            for index in range(config.num_hidden_layers)
        ]
        self._norm = self.backend.parameter(weights.take("norm.weight", hidden))
        self.markov: MarkovHead | None = None
        if config.markov_rank:
            self._load_markov(weights)
        self.confidence_head: Array | None = None
        if config.enable_confidence_head:
            width = hidden + (config.markov_rank if config.confidence_head_with_markov else 0)
            self.confidence_head = self.backend.prepare_linear(
                [weights.take("confidence_head.proj.weight", 1, width)],
                [weights.take("confidence_head.proj.bias", 1)],
            )
        weights.finish()
        self.rope_table = self.backend.rope_table(
            config.rope, config.head_dim, max_length + config.block_size
        )

    def _load_markov(self, weights: Weights) -> None:
        config = self.config
        self.markov = markov_head(self._walk, config, weights)
        # The table knows target ids, the bias draft ids: two spaces, often of one size.
        self.markov_table = self.backend.parameter(
            weights.take("markov_head.markov_w1.weight", config.vocab_size, config.markov_rank)
        )
        self.markov_bias = self.backend.prepare_linear(
            [
                weights.take(
                    "markov_head.markov_w2.weight", config.draft_vocab_size, config.markov_rank
                )
            ]
        )

    def new_store(self, pages: int, page_size: int) -> KvStore:
        """Room for this model's keys and values."""
        config = self.config
        return self.backend.kv_store(
            config.num_hidden_layers, pages, page_size, config.num_key_value_heads, config.head_dim
        )

    def extend(self, features: Array, segments: Sequence[Segment], store: KvStore) -> None:
        """Adds context for the positions of `segments`, from their rows of target features.

        Raises:
            WeightError: `features` is not [rows of all segments, taps * target hidden size].
        """
        width = features.shape[-1]
        if width != self.config.feature_size:
            raise WeightError(
                f"a position's features are {len(self.config.target_layer_ids)} taps of"
                f" {self.config.target_hidden_size} values; {width} values arrived"
            )
        self.keep(features, store, plan_writes(self.backend, segments, store, self.rope_table))

    def keep(self, features: Array, store: KvStore, rows: RowPlan) -> None:
        """The same for rows that are planned already."""
        projected = self.backend.linear_features(features, self._fc)
        context = self.backend.rms_norm(projected, self._context_norm, self.config.rms_norm_eps)
        for layer in self._layers:
            layer.keep(context, store, rows)

    def block(self, anchors: Sequence[Anchor], store: KvStore) -> Array:
        """Hidden states [requests, drafts, H] of the slots that draft, under the final norm.

        The keys and values of the block's rows land behind the context and are worth nothing
        afterwards; the next context overwrites them.
        """
        config = self.config
        masks = [config.mask_token_id] * (config.block_size - 1)
        segments = [
            Segment([anchor.token, *masks], anchor.position, anchor.pages) for anchor in anchors
        ]
        rows = plan_rows(
            self.backend,
            config,
            segments,
            store,
            self.rope_table,
            causal=False,
            sliding_causal=not config.sliding_window_non_causal,
        )
        ids = self.backend.ids([token for segment in segments for token in segment.tokens])
        hidden = self.run(ids, store, rows)
        hidden = hidden.reshape(len(anchors), config.block_size, config.hidden_size)
        return hidden[:, config.block_size - config.drafts_per_round :]

    def run(self, ids: Array, store: KvStore, rows: RowPlan) -> Array:
        """Hidden states [R, H] under the final norm, of blocks whose tokens are `ids` [R]."""
        x = self.backend.embedding(ids, self._embedding)
        for layer in self._layers:
            x = layer.forward(x, store, rows)
        return self.backend.rms_norm(x, self._norm, self.config.rms_norm_eps)

    def base_logits(self, hidden: Array) -> Array:
        """The head's logits [R, draft vocabulary] for hidden states [R, H], without any bias."""
        logits = self.backend.linear(hidden, self.head)
        scaled = logits if self.config.logit_scale == 1.0 else logits * self.config.logit_scale
        return scaled[:, : len(self.target_ids)]

    def embedded(self, previous: Sequence[int]) -> Array | None:
        """The Markov table's rows for the target ids `previous`, or None without such a head."""
        if self.markov is None:
            return None
        return self.backend.embedding(self.backend.ids(previous), self.markov_table)

    def bias(self, latent: Array) -> Array:
        """What the latent vectors [R, r] add to the base logits."""
        return self.backend.linear(latent, self.markov_bias)[:, : len(self.target_ids)]

    def confidence(self, hidden: Array, embedded: Array | None) -> HostFloats | None:
        """For each row: the chance that its draft survives if all before it did; None if unknown.

        It is a logit; `confidence.py` turns it into a probability.
        """
        if self.confidence_head is None:
            return None
        read = [hidden, embedded] if self.config.confidence_head_with_markov else [hidden]
        logits = self.backend.linear(self._walk.concat(read), self.confidence_head)
        return self.backend.host(logits)[:, 0]


def _embedding(
    backend: Backend, target: Qwen3Target, config: DraftConfig, weights: Weights
) -> Array:
    if "embed_tokens.weight" in weights:
        shape = config.vocab_size, config.hidden_size
        return backend.parameter(weights.take("embed_tokens.weight", *shape))
    _must_match("embed_tokens.weight", config.hidden_size, target.config.hidden_size)
    return target.embedding


def _head(backend: Backend, target: Qwen3Target, config: DraftConfig, weights: Weights) -> Array:
    # What is in the file decides: a draft's own head may differ from the target's although
    # `tie_word_embeddings` was copied from the target's configuration.
    if "lm_head.weight" in weights:
        shape = config.draft_vocab_size, config.hidden_size
        return backend.prepare_linear([weights.take("lm_head.weight", *shape)])
    if "embed_tokens.weight" in weights and config.tie_word_embeddings:
        shape = config.draft_vocab_size, config.hidden_size
        return backend.prepare_linear([weights.take("embed_tokens.weight", *shape)])
    _must_match("lm_head.weight", config.hidden_size, target.config.hidden_size)
    _must_match("lm_head.weight", config.draft_vocab_size, target.config.vocab_size)
    return target.head


def _must_match(name: str, draft: int, target: int) -> None:
    if draft != target:
        raise WeightError(
            f"tensor `{name}` is missing, and the target's cannot stand in: {draft} is not {target}"
        )


def _target_ids(target_rows: int, config: DraftConfig, weights: Weights) -> HostInts:
    """The target id of each draft id; draft ids beyond the target's rows are cut off."""
    if "d2t" not in weights and config.draft_vocab_size >= target_rows:
        return np.arange(target_rows)
    offsets = np.asarray(weights.take("d2t", config.draft_vocab_size), dtype=np.int64)
    ids: HostInts = np.arange(config.draft_vocab_size) + offsets
    # A draft becomes the token before the next one, which the Markov table is asked for.
    known = min(target_rows, config.vocab_size) if config.markov_rank else target_rows
    if ids.min() < 0 or ids.max() >= known or len(np.unique(ids)) != len(ids):
        raise WeightError("tensor `d2t` does not map draft ids to distinct ids of the target")
    return ids
