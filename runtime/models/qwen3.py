"""The target: a dense Qwen3 causal language model, with the taps that a draft listens to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dspark.runtime.backends.base import Array, Backend, KvStore
from dspark.runtime.errors import WeightError
from dspark.runtime.models.config import TargetConfig
from dspark.runtime.models.decoder import DecoderLayer, RowPlan
from dspark.runtime.models.rows import Segment, plan_rows
from dspark.runtime.models.weights import Weights

EMBEDDING_TAP = -1


@dataclass(frozen=True, slots=True)
class TargetPass:
    """What one pass over R rows left behind.

    `hidden` [R, H] is the last layer's output under the final norm, for `Qwen3Target.logits`.
    `features` [R, taps * H] are the taps side by side, or None when none were asked for.
    """

    hidden: Array
    features: Array | None


class Qwen3Target:
    """A target on a device. `tap_ids` are the 0-based layers whose output the draft reads.

    `max_length` is how many positions it can be asked for.

    Raises:
        WeightError: a tensor is missing, left over or of another shape, or a tap names a layer
            that the target does not have.
    """

    def __init__(
        self,
        backend: Backend,
        config: TargetConfig,
        tensors: Mapping[str, Any],
        *,
        max_length: int,
        tap_ids: Sequence[int] = (),
    ) -> None:
        for tap in tap_ids:
            if not EMBEDDING_TAP <= tap < config.num_hidden_layers:
                raise WeightError(
                    f"the draft taps layer {tap} of a target with {config.num_hidden_layers} layers"
                )
        self.backend = backend
        self.config = config
        self.tap_ids = tuple(tap_ids)
        self.max_length = max_length
        weights = Weights(tensors)
        rows, hidden = config.vocab_size, config.hidden_size
        embedding = weights.take("model.embed_tokens.weight", rows, hidden)
        self.embedding = backend.parameter(embedding)
        self._layers = [
            DecoderLayer(backend, config, index, weights, "model.")
            for index in range(config.num_hidden_layers)
        ]
        self._norm = backend.parameter(weights.take("model.norm.weight", hidden))
        # A file may carry a head although the embedding is tied to it; the file wins.
        if "lm_head.weight" in weights:
            head = weights.take("lm_head.weight", rows, hidden)
        elif config.tie_word_embeddings:
            head = embedding
        else:
            raise WeightError("tensor `lm_head.weight` is missing, and the embedding is not tied")
        self.head = backend.prepare_linear([head])
        weights.finish()
        self.rope_table = backend.rope_table(config.rope, config.head_dim, max_length)

    def new_store(self, pages: int, page_size: int) -> KvStore:
        """Room for this model's keys and values."""
        config = self.config
        return self.backend.kv_store(
            config.num_hidden_layers, pages, page_size, config.num_key_value_heads, config.head_dim
        )

    def forward(self, segments: Sequence[Segment], store: KvStore) -> TargetPass:
        """Runs the tokens of all segments at once, each row seeing what came before it."""
        ids = self.backend.ids([token for segment in segments for token in segment.tokens])
        rows = plan_rows(self.backend, self.config, segments, store, self.rope_table, causal=True)
        return self.run(self.backend.embedding(ids, self.embedding), store, rows)

    def run(self, x: Array, store: KvStore, rows: RowPlan) -> TargetPass:
        """The same from embeddings `x` [R, H] on."""
        backend, count = self.backend, len(self.tap_ids)
        room = backend.tap_room(count, x) if count else None
        self._tap(room, EMBEDDING_TAP, x)
        for index, layer in enumerate(self._layers):
            x = layer.forward(x, store, rows)
            self._tap(room, index, x)
        hidden = backend.rms_norm(x, self._norm, self.config.rms_norm_eps)
        return TargetPass(hidden, backend.features(room) if count else None)

    def _tap(self, room: Array, layer: int, x: Array) -> None:
        if layer in self.tap_ids:
            self.backend.tap(room, self.tap_ids.index(layer), x)

    def logits(self, hidden: Array) -> Array:
        """Logits [R, V] of rows of `TargetPass.hidden`."""
        return self.backend.logits(hidden, self.head)
