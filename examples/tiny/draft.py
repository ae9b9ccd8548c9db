"""The block draft: its modules under the published names, its objective and its round."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from qwen import Attention, Cache, Config, Layer, RMSNorm, Target, rotary
from torch import Tensor, nn

GAMMA_DECAY = 4.0
WEIGHT_OF_CE, WEIGHT_OF_L1, WEIGHT_OF_CONFIDENCE = 0.1, 0.9, 1.0


@dataclass(frozen=True, slots=True)
class Shape:
    """What a draft is beside its Qwen3 layers."""

    taps: tuple[int, ...]
    mask_id: int
    drafts: int
    markov_rank: int  # 0: no Markov head and no confidence head
    anchor_predicts: bool  # false: one more row, and the anchor's own predicts nothing
    draft_ids: tuple[int, ...] | None = None  # the target ids of a reduced vocabulary, ascending


@dataclass(frozen=True, slots=True)
class Blocks:
    """The blocks of one training step; every tensor is [batch, blocks, ...]."""

    anchor_at: Tensor  # positions of the anchors
    previous: Tensor  # [..., drafts] the true token before each draft, the anchor first
    labels: Tensor  # [..., drafts] the true token at each draft
    wanted: Tensor  # [..., drafts, vocab] the target's distribution at each draft


def attend_block(
    q: Tensor, context: tuple[Tensor, Tensor], block: tuple[Tensor, Tensor], visible: Tensor | None
) -> Tensor:
    """Every row of a block over its visible context and over the whole of its own block.

    Args:
        q: [batch, heads, blocks * rows, d].
        context: keys and values [batch, kv_heads, length, d].
        block: keys and values [batch, kv_heads, blocks * rows, d].
        visible: [batch, blocks, length], true where a block sees a position; None for all.
    """
    (context_k, context_v), (block_k, block_v) = context, block
    batch, heads, total, width = q.shape
    kv_heads, length = context_k.shape[1:3]
    blocks = 1 if visible is None else visible.shape[1]
    rows, group = total // blocks, heads // kv_heads
    q = q.reshape(batch, kv_heads, group * total, width) * width**-0.5
    seen = (q @ context_k.mT).view(batch, kv_heads, group, blocks, rows, length).float()
    if visible is not None:
        seen = seen.masked_fill(~visible[:, None, None, :, None, :], float("-inf"))
    per_block = q.view(batch, kv_heads, group, blocks, rows, width)
    own_k = block_k.reshape(batch, kv_heads, 1, blocks, rows, width)
    own_v = block_v.reshape(batch, kv_heads, 1, blocks, rows, width)
    own = (per_block @ own_k.mT).float()
    share = torch.cat([seen, own], dim=-1).softmax(-1).to(block_v.dtype)
    from_context = share[..., :length].reshape(batch, kv_heads, -1, length) @ context_v
    from_block = share[..., length:] @ own_v
    return from_context.view(batch, heads, total, width) + from_block.reshape(q.shape).view(
        batch, heads, total, width
    )


class MarkovHead(nn.Module):
    """A bias over the draft vocabulary from the previous token, of low rank."""

    def __init__(self, vocab: int, draft_vocab: int, rank: int) -> None:
        super().__init__()
        self.markov_w1 = nn.Embedding(vocab, rank)
        self.markov_w2 = nn.Linear(rank, draft_vocab, bias=False)


class ConfidenceHead(nn.Module):
    """The logit of the probability that a draft survives."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.proj = nn.Linear(width, 1)


class Draft(nn.Module):
    """A DSpark draft, or a DFlash one where `markov_rank` is 0."""

    def __init__(self, config: Config, shape: Shape) -> None:
        super().__init__()
        self.config, self.shape = config, shape
        hidden, eps = config["hidden_size"], config["rms_norm_eps"]
        vocab = config["vocab_size"]
        ids = shape.draft_ids or tuple(range(vocab))
        self.register_buffer("draft_ids", torch.tensor(ids), persistent=False)
        index = torch.full((vocab,), -1).index_copy(0, self.draft_ids, torch.arange(len(ids)))
        self.register_buffer("draft_index", index, persistent=False)
        self.embed_tokens = nn.Embedding(vocab, hidden)
        self.lm_head = nn.Linear(hidden, len(ids), bias=False)
        self.fc = nn.Linear(len(shape.taps) * hidden, hidden, bias=False)
        self.hidden_norm = RMSNorm(hidden, eps)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config["num_hidden_layers"]))
        self.norm = RMSNorm(hidden, eps)
        if shape.markov_rank:
            self.markov_head = MarkovHead(vocab, len(ids), shape.markov_rank)
            self.confidence_head = ConfidenceHead(hidden + shape.markov_rank)

    def initialise(self, target: Target, seed: int) -> None:
        """Frozen copies of the target's embedding and (tied) head; its last layers to start from.

        The deepest tap goes through unchanged at first, so the last layer of the draft begins with
        very nearly the keys and values that the target's last layer has for the same context.
        """
        torch.manual_seed(seed)
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=self.config["initializer_range"])
            if name == "markov_head.markov_w2.weight":
                nn.init.zeros_(parameter)  # the head starts as no bias at all
        embedding, last = target.model.embed_tokens.weight, target.model.layers[-1]
        with torch.no_grad():
            self.embed_tokens.weight.copy_(embedding)
            self.lm_head.weight.copy_(embedding[self.draft_ids])
            self.fc.weight[:, -self.config["hidden_size"] :] += torch.eye(self.fc.out_features)
            self.hidden_norm.weight.copy_(last.input_layernorm.weight)
            self.norm.weight.copy_(target.model.norm.weight)
            for mine, theirs in zip(
                self.layers, target.model.layers[-len(self.layers) :], strict=True
            ):
                mine.load_state_dict(theirs.state_dict())
        self.embed_tokens.weight.requires_grad_(False)
        self.lm_head.weight.requires_grad_(False)

    def context(self, features: Tensor, start: int) -> list[tuple[Tensor, Tensor]]:
        """Each layer's keys and values for the features [batch, rows, taps * hidden] of the
        positions from `start` on. The layers' input norms have no part in it.
        """
        c = self.hidden_norm(self.fc(features))
        cos_sin = rotary(torch.arange(start, start + features.shape[1]), self.config)
        return [layer.self_attn.key_value(c, cos_sin) for layer in self.layers]

    def hidden(
        self,
        anchors: Tensor,
        positions: Tensor,
        context: list[tuple[Tensor, Tensor]],
        visible: Tensor | None = None,
    ) -> Tensor:
        """The hidden states [batch, blocks, drafts, hidden] that the drafts are read from.

        Args:
            anchors: the anchor tokens [batch, blocks].
            positions: their positions [batch, blocks].
            context: what `context` returned, per layer.
            visible: as in `attend_block`.
        """
        skip = 0 if self.shape.anchor_predicts else 1
        rows = self.shape.drafts + skip
        batch, blocks = anchors.shape
        ids = torch.full((batch, blocks, rows), self.shape.mask_id)
        ids[:, :, 0] = anchors
        x = self.embed_tokens(ids).flatten(1, 2)
        at = (positions[:, :, None] + torch.arange(rows)).flatten(1)
        cos, sin = rotary(at, self.config)
        cos_sin = cos[:, None], sin[:, None]
        for layer, past in zip(self.layers, context, strict=True):
            attention: Attention = layer.self_attn
            y = layer.input_layernorm(x)
            q, own = attention.query(y, cos_sin), attention.key_value(y, cos_sin)
            x = layer.finish(x, attend_block(q, past, own, visible))
        return self.norm(x).unflatten(1, (blocks, rows))[:, :, skip:]

    def loss(self, features: Tensor, blocks: Blocks) -> Tensor:
        """DeepSpec's objective over blocks at random anchors, teacher-forced.

        Args:
            features: the taps of all positions [batch, length, taps * hidden].
            blocks: what the blocks start from and should say.
        """
        visible = torch.arange(features.shape[1]) < blocks.anchor_at[:, :, None]
        anchors = blocks.previous[:, :, 0]
        context = self.context(features, 0)
        hidden = self.hidden(anchors, blocks.anchor_at, context, visible)
        logits = self.lm_head(hidden)
        if self.shape.markov_rank:
            embedded = self.markov_head.markov_w1(blocks.previous)
            logits = logits + self.markov_head.markov_w2(embedded)
        log_probs = logits.float().log_softmax(-1)
        label, wanted, outside = self.draft_index[blocks.labels], blocks.wanted, 0.0
        if self.shape.draft_ids:
            wanted = wanted[..., self.draft_ids]
            # The target's mass outside a reduced vocabulary is a constant part of the distance.
            outside = 1 - wanted.sum(-1)
        distance = (log_probs.exp() - wanted).abs().sum(-1) + outside
        said = log_probs.gather(-1, label.clamp(min=0)[..., None])[..., 0]
        loss = WEIGHT_OF_CE * -said * (label >= 0) + WEIGHT_OF_L1 * distance
        if self.shape.markov_rank:
            survives = (1 - 0.5 * distance).detach().clamp(0, 1)
            logit = self.confidence_head.proj(torch.cat([hidden, embedded], dim=-1))[..., 0]
            loss = loss + WEIGHT_OF_CONFIDENCE * nn.functional.binary_cross_entropy_with_logits(
                logit.float(), survives, reduction="none"
            )
        weight = torch.exp(-torch.arange(self.shape.drafts) / GAMMA_DECAY)
        return (loss * weight).mean((0, 1)).sum() / weight.sum()

    def propose(self, anchor: int, cache: Cache) -> list[int]:
        """The block's drafts, greedily, as target ids; `cache` holds the committed context."""
        context = [(k[:, :, : cache.length], v[:, :, : cache.length]) for k, v in cache.layers]
        hidden = self.hidden(torch.tensor([[anchor]]), torch.tensor([[cache.length]]), context)
        logits, drafts, previous = self.lm_head(hidden)[0, 0], [], anchor
        for at in range(self.shape.drafts):
            if self.shape.markov_rank:
                embedded = self.markov_head.markov_w1.weight[previous]
                logits[at] += self.markov_head.markov_w2(embedded)
            previous = int(self.draft_ids[logits[at].argmax()])
            drafts.append(previous)
        return drafts


@dataclass(slots=True)
class Tally:
    """What a draft's rounds came to."""

    rounds: int = 0
    tokens: int = 0
    accepted: list[int] = field(default_factory=list)  # rounds that accepted draft j, by j


@torch.inference_mode()
def speculative(
    target: Target, draft: Draft, prompt: list[int], new_tokens: int, end: int, tally: Tally
) -> list[int]:
    """The same text in rounds of one draft block and one target pass; `tally` counts the rounds.

    The last round counts in full, also what it accepts beyond `new_tokens` or `end`.
    """
    drafts, taps = draft.shape.drafts, draft.shape.taps
    room = len(prompt) + new_tokens + drafts + 1
    cache = Cache(target.config, 1, room, torch.float32)
    context = Cache(draft.config, 1, room, torch.float32)

    def commit(features: Tensor) -> None:
        for layer, (k, v) in enumerate(draft.context(features, context.length)):
            context.write(layer, k, v)
        context.length += features.shape[1]

    logits, features = target(torch.tensor([prompt]), taps, cache)
    commit(features)
    said = [int(logits[0, -1].argmax())]
    tally.accepted = tally.accepted or [0] * drafts
    while len(said) < new_tokens and end not in said:
        proposed = draft.propose(said[-1], context)
        committed = cache.length
        logits, features = target(torch.tensor([[said[-1], *proposed]]), taps, cache)
        wanted = logits[0].argmax(-1).tolist()
        count = 0
        while count < drafts and proposed[count] == wanted[count]:
            tally.accepted[count] += 1
            count += 1
        said += [*proposed[:count], wanted[count]]
        tally.rounds += 1
        tally.tokens += count + 1
        cache.length = committed + count + 1
        commit(features[:, : count + 1])
    said = said[:new_tokens]
    return said[: said.index(end) + 1] if end in said else said
