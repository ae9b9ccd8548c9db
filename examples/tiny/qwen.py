"""The target and the drafts as plain PyTorch modules whose parameters bear the published names."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

Config = dict[str, Any]


class RMSNorm(nn.Module):
    """Root-mean-square norm with a plain weight, its variance in float32."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """`x` normalised over its last axis."""
        wide = x.float()
        wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)
        return wide.to(x.dtype) * self.weight


def rotary(positions: Tensor, config: Config) -> tuple[Tensor, Tensor]:
    """Cosines and sines [..., head_dim] of the rotate-half embedding for int positions [...]."""
    half = config["head_dim"] // 2
    theta = config["rope_parameters"]["rope_theta"]
    frequencies = theta ** (-torch.arange(half, dtype=torch.float32) / half)
    angles = positions[..., None].float() * frequencies
    angles = torch.cat([angles, angles], dim=-1)
    return angles.cos(), angles.sin()


def rotate(x: Tensor, cos_sin: tuple[Tensor, Tensor]) -> Tensor:
    """`x` [..., rows, head_dim] turned by the angles of its rows."""
    cos, sin = cos_sin
    low, high = x.chunk(2, dim=-1)
    return (x * cos + torch.cat([-high, low], dim=-1) * sin).to(x.dtype)


class Attention(nn.Module):
    """The projections of one layer; who attends to what is decided by the callers."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        hidden, self.head_dim = config["hidden_size"], config["head_dim"]
        self.heads, self.kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
        self.q_proj = nn.Linear(hidden, self.heads * self.head_dim, bias=False)
        self.k_proj = nn.Linear(hidden, self.kv_heads * self.head_dim, bias=False)
        self.v_proj = nn.Linear(hidden, self.kv_heads * self.head_dim, bias=False)
        self.o_proj = nn.Linear(self.heads * self.head_dim, hidden, bias=False)
        self.q_norm = RMSNorm(self.head_dim, config["rms_norm_eps"])
        self.k_norm = RMSNorm(self.head_dim, config["rms_norm_eps"])

    def query(self, x: Tensor, cos_sin: tuple[Tensor, Tensor]) -> Tensor:
        """Queries [batch, heads, rows, head_dim] of `x` [batch, rows, hidden]."""
        q = self.q_proj(x).unflatten(-1, (self.heads, self.head_dim))
        return rotate(self.q_norm(q).transpose(1, 2), cos_sin)

    def key_value(self, x: Tensor, cos_sin: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """Keys and values [batch, kv_heads, rows, head_dim] of `x` [batch, rows, hidden]."""
        k = self.k_proj(x).unflatten(-1, (self.kv_heads, self.head_dim))
        v = self.v_proj(x).unflatten(-1, (self.kv_heads, self.head_dim))
        return rotate(self.k_norm(k).transpose(1, 2), cos_sin), v.transpose(1, 2)


class MLP(nn.Module):
    """SwiGLU."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        hidden, inner = config["hidden_size"], config["intermediate_size"]
        self.gate_proj = nn.Linear(hidden, inner, bias=False)
        self.up_proj = nn.Linear(hidden, inner, bias=False)
        self.down_proj = nn.Linear(inner, hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """The layer's feed-forward branch, without its residual."""
        return self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    """One pre-norm decoder layer of the target or of a draft."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(config["hidden_size"], config["rms_norm_eps"])
        self.self_attn = Attention(config)
        self.post_attention_layernorm = RMSNorm(config["hidden_size"], config["rms_norm_eps"])
        self.mlp = MLP(config)

    def finish(self, x: Tensor, attended: Tensor) -> Tensor:
        """`x` after both residual branches; `attended` is [batch, heads, rows, head_dim]."""
        x = x + self.self_attn.o_proj(attended.transpose(1, 2).flatten(2))
        return x + self.mlp(self.post_attention_layernorm(x))


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
    """Grouped-query attention to every key, or to those where `mask` [rows, keys] is true."""
    if mask is None:
        # The heads of a group as the rows of one head: PyTorch would repeat the keys for each.
        grouped = q.reshape(q.shape[0], k.shape[1], -1, q.shape[-1])
        return functional.scaled_dot_product_attention(grouped, k, v).reshape(q.shape)
    return functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True)


class Cache:
    """Room for the keys and values of `capacity` rows, the first `length` of them in use."""

    def __init__(self, config: Config, batch: int, capacity: int, dtype: torch.dtype) -> None:
        shape = (batch, config["num_key_value_heads"], capacity, config["head_dim"])
        self.layers = [
            (torch.zeros(shape, dtype=dtype), torch.zeros(shape, dtype=dtype))
            for _ in range(config["num_hidden_layers"])
        ]
        self.length = 0

    def write(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """All keys and values of a layer, the new ones last; `length` is the caller's to move."""
        keys, values = self.layers[layer]
        end = self.length + k.shape[2]
        keys[:, :, self.length : end], values[:, :, self.length : end] = k, v
        return keys[:, :, :end], values[:, :, :end]


class Backbone(nn.Module):
    """The part of a Qwen3 model whose tensor names start with `model.`."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(config["vocab_size"], config["hidden_size"])
        self.layers = nn.ModuleList(Layer(config) for _ in range(config["num_hidden_layers"]))
        self.norm = RMSNorm(config["hidden_size"], config["rms_norm_eps"])


class Target(nn.Module):
    """Qwen3ForCausalLM with a tied head."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.model = Backbone(config)

    def initialise(self, seed: int) -> None:
        """Fresh weights: matrices normal, narrower where they write into the residual stream."""
        torch.manual_seed(seed)
        std = self.config["initializer_range"]
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                into_residual = name.endswith(("o_proj.weight", "down_proj.weight"))
                depth = (2 * self.config["num_hidden_layers"]) ** 0.5
                nn.init.normal_(parameter, std=std / depth if into_residual else std)

    def forward(
        self, ids: Tensor, taps: tuple[int, ...] = (), cache: Cache | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Logits [batch, rows, vocab], and the tapped layers' outputs, joined on the last axis.

        With a cache, `ids` [batch, rows] continue what the cache holds, and are added to it.
        """
        start = cache.length if cache else 0
        rows = ids.shape[1]
        cos_sin = rotary(torch.arange(start, start + rows), self.config)
        mask = torch.ones(rows, start + rows, dtype=torch.bool).tril(start) if rows > 1 else None
        x, tapped = self.model.embed_tokens(ids), []
        for number, layer in enumerate(self.model.layers):
            y = layer.input_layernorm(x)
            q, (k, v) = layer.self_attn.query(y, cos_sin), layer.self_attn.key_value(y, cos_sin)
            if cache:
                k, v = cache.write(number, k, v)
                attended = attend(q, k, v, mask)
            else:
                attended = functional.scaled_dot_product_attention(
                    q, k, v, is_causal=True, enable_gqa=True
                )
            x = layer.finish(x, attended)
            if number in taps:
                tapped.append(x)
        if cache:
            cache.length += rows
        logits = functional.linear(self.model.norm(x), self.model.embed_tokens.weight)
        return logits, torch.cat(tapped, dim=-1) if tapped else None


@torch.inference_mode()
def continuations(target: Target, prompts: Tensor, length: int, temperature: float) -> Tensor:
    """The prompts [batch, width] continued to `length` tokens, greedily at temperature 0.

    End-of-text does not stop a row: what the target says after it is text like any other.
    """
    batch, width = prompts.shape
    cache = Cache(target.config, batch, length, target.model.norm.weight.dtype)
    ids = torch.empty((batch, length), dtype=torch.long)
    ids[:, :width] = new = prompts
    for at in range(width, length):
        logits = target(new, cache=cache)[0][:, -1].float()
        if temperature:
            new = torch.multinomial((logits / temperature).softmax(-1), 1)
        else:
            new = logits.argmax(-1, keepdim=True)
        ids[:, at] = new[:, 0]
    return ids


@torch.inference_mode()
def plain(target: Target, prompt: list[int], new_tokens: int, end: int) -> list[int]:
    """Greedy decoding, one token a step, up to and including the first `end`."""
    cache = Cache(target.config, 1, len(prompt) + new_tokens, torch.float32)
    said: list[int] = []
    ids = prompt
    while len(said) < new_tokens and (not said or said[-1] != end):
        ids = [int(target(torch.tensor([ids]), cache=cache)[0][0, -1].argmax())]
        said += ids
    return said
