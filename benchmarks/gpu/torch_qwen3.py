"""A Qwen3 step by PyTorch alone, to be captured in a CUDA graph: what there is without us."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dspark.runtime.backends.rope import inverse_frequencies

if TYPE_CHECKING:
    import torch

    from benchmarks.gpu.pair import Tensors
    from dspark.runtime.models.config import TargetConfig


@dataclass(slots=True)
class _Layer:
    """The weights of one layer, those that take the same input in one, and its cache."""

    input_norm: torch.Tensor
    query_key_value: torch.Tensor
    q_norm: torch.Tensor
    k_norm: torch.Tensor
    output: torch.Tensor
    post_norm: torch.Tensor
    gate_up: torch.Tensor
    down: torch.Tensor
    keys: torch.Tensor
    values: torch.Tensor


class TorchQwen3:
    """Greedy decoding of one request of up to `length` positions, one token a `step`.

    `token` [1] and `position` [1] lie on the device, and a step moves both on, so it can be
    replayed. The caches hold `length` positions, and all of them are looked at in every step.
    """

    def __init__(self, config: TargetConfig, tensors: Tensors, length: int) -> None:
        import torch

        embedding = tensors["model.embed_tokens.weight"]
        self._config = config
        self._embedding, self._norm = embedding, tensors["model.norm.weight"]
        self._head = tensors.get("lm_head.weight", embedding)
        self._layers = [
            _layer(config, tensors, index, length) for index in range(config.num_hidden_layers)
        ]
        device = embedding.device
        self.token = torch.zeros(1, dtype=torch.int64, device=device)
        self.position = torch.zeros(1, dtype=torch.int64, device=device)
        self._places = torch.arange(length, device=device)
        frequencies, scale = inverse_frequencies(config.rope, config.head_dim)
        angles = torch.arange(length)[:, None].float() * torch.from_numpy(frequencies).float()
        both = torch.cat([angles, angles], dim=-1)
        self._cos, self._sin = (
            (each * scale).to(embedding.dtype).to(device) for each in (both.cos(), both.sin())
        )

    def step(self) -> torch.Tensor:
        """Puts the next token in `token`; the logits [1, V]."""
        import torch
        from torch.nn.functional import silu

        eps = self._config.rms_norm_eps
        x = self._embedding[self.token]
        turns = self._cos[self.position], self._sin[self.position]
        hidden = (self._places > self.position)[None, None, :]
        for layer in self._layers:
            normed = _normed(x, layer.input_norm, eps)
            x = x + self._attention(layer, normed, turns, hidden) @ layer.output.T
            gate, up = (_normed(x, layer.post_norm, eps) @ layer.gate_up.T).chunk(2, dim=-1)
            x = x + (silu(gate) * up) @ layer.down.T
        logits = _normed(x, self._norm, eps) @ self._head.T
        torch.argmax(logits, dim=-1, out=self.token)
        self.position += 1
        return logits

    def _attention(
        self,
        layer: _Layer,
        x: torch.Tensor,
        turns: tuple[torch.Tensor, torch.Tensor],
        hidden: torch.Tensor,
    ) -> torch.Tensor:
        c = self._config
        heads, kv_heads, size = c.num_attention_heads, c.num_key_value_heads, c.head_dim
        found = (x @ layer.query_key_value.T).view(-1, size)
        q, k, v = found.split([heads, kv_heads, kv_heads])
        q = _turned(_normed(q, layer.q_norm, c.rms_norm_eps), turns)
        k = _turned(_normed(k, layer.k_norm, c.rms_norm_eps), turns)
        layer.keys.index_copy_(1, self.position, k[:, None])
        layer.values.index_copy_(1, self.position, v[:, None])
        # Query heads that share a key head are rows of one product, so the cache is read once.
        scores = q.view(kv_heads, -1, size) @ layer.keys.mT * size**-0.5
        weights = scores.float().masked_fill(hidden, float("-inf")).softmax(-1).to(x.dtype)
        return (weights @ layer.values).view(1, -1)


def _layer(config: TargetConfig, tensors: Tensors, index: int, length: int) -> _Layer:
    import torch

    name = f"model.layers.{index}."
    attention, mlp = name + "self_attn.", name + "mlp."

    def joined(*names: str) -> torch.Tensor:
        return torch.cat([tensors[f"{each}_proj.weight"] for each in names])

    query_key_value = joined(*(attention + part for part in "qkv"))
    room = config.num_key_value_heads, length, config.head_dim
    return _Layer(
        input_norm=tensors[name + "input_layernorm.weight"],
        query_key_value=query_key_value,
        q_norm=tensors[attention + "q_norm.weight"],
        k_norm=tensors[attention + "k_norm.weight"],
        output=tensors[attention + "o_proj.weight"],
        post_norm=tensors[name + "post_attention_layernorm.weight"],
        gate_up=joined(mlp + "gate", mlp + "up"),
        down=tensors[mlp + "down_proj.weight"],
        keys=query_key_value.new_zeros(room),
        values=query_key_value.new_zeros(room),
    )


def _normed(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    from torch.nn.functional import rms_norm

    return rms_norm(x, (x.shape[-1],), weight, eps)


def _turned(x: torch.Tensor, turns: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    import torch

    cos, sin = turns
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-second, first], dim=-1) * sin
