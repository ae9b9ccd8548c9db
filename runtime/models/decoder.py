"""One Qwen3 decoder layer, as the target and the draft share it."""

from __future__ import annotations

from dataclasses import dataclass

from dspark.runtime.backends.base import Array, Backend, KvStore
from dspark.runtime.models.config import DecoderConfig
from dspark.runtime.models.weights import Weights


@dataclass(frozen=True, slots=True)
class RowPlan:
    """Where the rows of one pass stand and what they see, on the device.

    `slots` [R] are where their keys and values go, `rotary` how their positions turn them, and
    `attention` has one plan per window that the model's layers use.
    """

    slots: Array
    rotary: Array
    attention: dict[int | None, Array]


class DecoderLayer:
    """Attention and feed-forward of one layer; keys and values go to a `KvStore`."""

    def __init__(
        self,
        backend: Backend,
        config: DecoderConfig,
        index: int,
        weights: Weights,
        prefix: str,
        *,
        keeps_context: bool = False,
    ) -> None:
        """`keeps_context` says that `keep` will be called, as it is for a draft's context."""
        self._backend = backend
        self._index = index
        self._eps = config.rms_norm_eps
        self._window = config.window(index)
        heads, kv_heads = config.num_attention_heads, config.num_key_value_heads
        hidden, width = config.hidden_size, config.intermediate_size
        name = f"{prefix}layers.{index}."
        attention, mlp = name + "self_attn.", name + "mlp."
        query, key = heads * config.head_dim, kv_heads * config.head_dim

        def norm(which: str, size: int) -> Array:
            return backend.parameter(weights.take(f"{name}{which}.weight", size))

        def stacked(*parts: tuple[str, int]) -> Array:
            matrices = [weights.take(f"{part}.weight", rows, hidden) for part, rows in parts]
            if not (config.attention_bias and parts[0][0].startswith(attention)):
                return backend.prepare_linear(matrices)
            biases = [weights.take(f"{part}.bias", rows) for part, rows in parts]
            return backend.prepare_linear(matrices, biases)

        self._input_norm = norm("input_layernorm", hidden)
        self._post_norm = norm("post_attention_layernorm", hidden)
        q_norm = norm("self_attn.q_norm", config.head_dim)
        k_norm = norm("self_attn.k_norm", config.head_dim)
        self._head_norms = backend.prepare_head_norms(q_norm, k_norm, heads, kv_heads)
        key_value = (attention + "k_proj", key), (attention + "v_proj", key)
        self._query_key_value = stacked((attention + "q_proj", query), *key_value)
        # Of a context only keys and values are needed: these two again, without the query.
        if keeps_context:
            self._key_value = stacked(*key_value)
            self._key_norms = backend.prepare_head_norms(q_norm, k_norm, 0, kv_heads)
        self._output = backend.prepare_linear(
            [weights.take(attention + "o_proj.weight", hidden, query)],
            [weights.take(attention + "o_proj.bias", hidden)] if config.attention_bias else None,
        )
        self._gate_up = stacked((mlp + "gate_proj", width), (mlp + "up_proj", width))
        self._down = backend.prepare_linear([weights.take(mlp + "down_proj.weight", hidden, width)])

    def forward(self, x: Array, store: KvStore, rows: RowPlan) -> Array:
        """The residual stream `x` [R, H] after this layer; the rows' keys and values are kept."""
        backend = self._backend
        normed = backend.rms_norm(x, self._input_norm, self._eps)
        heads = backend.linear(normed, self._query_key_value)
        q = backend.place_heads(
            heads, self._head_norms, self._eps, rows.rotary, store, self._index, rows.slots
        )
        mixed = backend.attend(q, store, self._index, rows.attention[self._window])
        x = backend.linear_add(mixed, self._output, x)
        normed = backend.rms_norm(x, self._post_norm, self._eps)
        return backend.linear_add(backend.linear_swiglu(normed, self._gate_up), self._down, x)

    def keep(self, x: Array, store: KvStore, rows: RowPlan) -> None:
        """Puts the keys and values of `x` [R, H], taken as it stands, at the rows' slots."""
        self._backend.place_heads(
            self._backend.linear(x, self._key_value),
            *(self._key_norms, self._eps, rows.rotary, store, self._index, rows.slots),
        )
