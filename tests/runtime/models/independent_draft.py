"""A draft in float64 NumPy, written from the algorithm's description alone: dense, and no cache.

It shares nothing with the runtime but the configuration's field names.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dspark.runtime.models.config import DraftConfig

Floats = np.ndarray


def sigmoid(x: Floats) -> Floats:
    return 1 / (1 + np.exp(-x))


def norm(x: Floats, weight: Floats, eps: float) -> Floats:
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + eps) * weight


def turned(x: Floats, positions: Floats, theta: float) -> Floats:
    half = x.shape[-1] // 2
    angles = positions[:, None] / theta ** (np.arange(half) / half)
    pairs = x[..., :half] + 1j * x[..., half:]
    pairs = pairs * np.exp(1j * angles)[:, None, :]
    return np.concatenate([pairs.real, pairs.imag], -1)


class IndependentDraft:
    def __init__(self, config: DraftConfig, tensors: Any, target: Any) -> None:
        self.config = config
        self.w = {name: np.asarray(tensor, dtype=np.float64) for name, tensor in tensors.items()}
        self.w.setdefault("embed_tokens.weight", np.asarray(target["model.embed_tokens.weight"]))
        self.w.setdefault("lm_head.weight", np.asarray(target["lm_head.weight"]))
        self.to_target = np.arange(config.draft_vocab_size)
        if "d2t" in self.w:
            self.to_target = self.to_target + self.w["d2t"].astype(int)

    def hidden(self, features: Floats, anchor: int) -> Floats:
        """Hidden states of the whole block behind the `features` of all committed positions."""
        c, w = self.config, self.w
        count, block = len(features), c.block_size
        context = norm(features @ w["fc.weight"].T, w["hidden_norm.weight"], c.rms_norm_eps)
        x = w["embed_tokens.weight"][[anchor] + [c.mask_token_id] * (block - 1)]
        positions = np.arange(count + block)
        for index in range(c.num_hidden_layers):
            p = f"layers.{index}."
            y = norm(x, w[p + "input_layernorm.weight"], c.rms_norm_eps)
            both = np.concatenate([context, y])
            q = (y @ w[p + "self_attn.q_proj.weight"].T).reshape(block, -1, c.head_dim)
            k = (both @ w[p + "self_attn.k_proj.weight"].T).reshape(count + block, -1, c.head_dim)
            v = (both @ w[p + "self_attn.v_proj.weight"].T).reshape(count + block, -1, c.head_dim)
            q = norm(q, w[p + "self_attn.q_norm.weight"], c.rms_norm_eps)
            k = norm(k, w[p + "self_attn.k_norm.weight"], c.rms_norm_eps)
            q = turned(q, positions[count:], c.rope.theta)
            k = turned(k, positions, c.rope.theta)
            k, v = (np.repeat(a, q.shape[1] // a.shape[1], axis=1) for a in (k, v))
            scores = np.einsum("qhd,khd->hqk", q, k) / np.sqrt(c.head_dim)
            if c.layer_types[index] == "sliding_attention":
                ahead = positions[None, :] - positions[count:, None]
                far = np.abs(ahead) >= c.sliding_window
                if not c.sliding_window_non_causal:
                    far |= ahead > 0
                scores = np.where(far, -np.inf, scores)
            weights = np.exp(scores - scores.max(-1, keepdims=True))
            weights /= weights.sum(-1, keepdims=True)
            mixed = np.einsum("hqk,khd->qhd", weights, v).reshape(block, -1)
            x = x + mixed @ w[p + "self_attn.o_proj.weight"].T
            z = norm(x, w[p + "post_attention_layernorm.weight"], c.rms_norm_eps)
            gate = z @ w[p + "mlp.gate_proj.weight"].T
            up = z @ w[p + "mlp.up_proj.weight"].T
            x = x + (gate * sigmoid(gate) * up) @ w[p + "mlp.down_proj.weight"].T
        return norm(x, w["norm.weight"], c.rms_norm_eps)

    def walk(self, features: Floats, anchor: int) -> tuple[Floats, list[int], list[float]]:
        """Logits, greedy drafts as target ids, and confidence logits, slot by slot."""
        c, w = self.config, self.w
        slots = self.hidden(features, anchor)
        if not c.sample_from_anchor:
            slots = slots[1:]
        previous, state = anchor, np.zeros(c.markov_rank)
        rows, drafts, confidence = [], [], []
        for h in slots:
            logits = w["lm_head.weight"] @ h
            e = np.zeros(0)
            if c.markov_rank:
                e = w["markov_head.markov_w1.weight"][previous]
                latent = e
                if c.markov_head_type == "gated":
                    gate = w["markov_head.gate_proj.weight"] @ np.concatenate([h, e])
                    latent = e * sigmoid(gate + w["markov_head.gate_proj.bias"])
                if c.markov_head_type == "rnn":
                    joint = w["markov_head.joint_proj.weight"] @ np.concatenate([state, e, h])
                    a, b, o = np.split(joint + w["markov_head.joint_proj.bias"], 3)
                    state = sigmoid(a) * state + (1 - sigmoid(a)) * np.tanh(b)
                    latent = np.tanh(o)
                logits = logits + w["markov_head.markov_w2.weight"] @ latent
            if c.enable_confidence_head:
                read = np.concatenate([h, e]) if c.confidence_head_with_markov else h
                line = w["confidence_head.proj.weight"][0] @ read
                confidence.append(float(line + w["confidence_head.proj.bias"][0]))
            previous = int(self.to_target[logits.argmax()])
            rows.append(logits)
            drafts.append(previous)
        return np.array(rows), drafts, confidence
