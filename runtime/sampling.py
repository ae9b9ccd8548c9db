"""From logits to the distribution that a request's parameters ask for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from dspark.runtime.backends.base import HostFloats
from dspark.runtime.params import SamplingParams


@dataclass(slots=True)
class History:
    """What the penalties count: the tokens of the prompt, and how often each was put out."""

    prompt: frozenset[int]
    output: dict[int, int] = field(default_factory=dict)

    def add(self, token: int) -> None:
        """Counts one more output token."""
        self.output[token] = self.output.get(token, 0) + 1

    def followed_by(self, tokens: Sequence[int]) -> History:
        """The history as it would be after `tokens`; this one stays as it is."""
        later = History(self.prompt, dict(self.output))
        for token in tokens:
            later.add(token)
        return later


def processed(logits: HostFloats, params: SamplingParams, history: History) -> HostFloats:
    """`logits` [V] after penalties and bias, float32; -inf stays -inf."""
    if not params.processes_logits:
        return logits
    out = np.array(logits, dtype=np.float32)
    if params.repetition_penalty != 1.0:
        seen = np.fromiter({*history.prompt, *history.output}, dtype=np.int64)
        worth = out[seen]
        factor = np.float32(params.repetition_penalty)
        out[seen] = np.where(worth > 0, worth / factor, worth * factor)
    if params.presence_penalty or params.frequency_penalty:
        counts = history.output
        put_out = np.fromiter(counts.keys(), dtype=np.int64, count=len(counts))
        times = np.fromiter(counts.values(), dtype=np.float32, count=len(counts))
        penalty = params.presence_penalty + params.frequency_penalty * times
        out[put_out] -= penalty.astype(np.float32)
    _add_bias(out, params.logit_bias)
    return out


def _add_bias(logits: HostFloats, biases: Mapping[int, float]) -> None:
    for token, bias in biases.items():
        logits[token] += np.float32(bias)


def distribution(logits: HostFloats, params: SamplingParams, history: History) -> HostFloats:
    """The probabilities [V] a request's next token is drawn from, float32, summing to 1.

    Greedy requests get all mass on the first largest logit.
    """
    return chances(processed(logits, params, history), params)


def chances(logits: HostFloats, params: SamplingParams) -> HostFloats:
    """The same from logits that are `processed` already, at least one of which is above -inf."""
    if params.greedy:
        one_hot = np.zeros(logits.shape, dtype=np.float32)
        one_hot[np.argmax(logits)] = 1.0
        return one_hot
    probabilities = _softmax(logits / np.float32(params.temperature))
    if params.top_k:
        probabilities = _keep_top_k(probabilities, params.top_k)
    if params.top_p < 1:
        probabilities = _keep_top_p(probabilities, params.top_p)
    if params.min_p > 0:
        least = np.float32(params.min_p) * probabilities.max()
        probabilities = _renormalised(np.where(probabilities >= least, probabilities, 0))
    return probabilities


def _softmax(logits: HostFloats) -> HostFloats:
    return _renormalised(np.exp(logits - logits.max(), dtype=np.float32))


def _renormalised(weights: HostFloats) -> HostFloats:
    # The sum is taken in float64: over 150,000 float32 terms the rounding would show.
    out: HostFloats = (weights / weights.sum(dtype=np.float64)).astype(np.float32)
    return out


def _keep_top_k(probabilities: HostFloats, count: int) -> HostFloats:
    """The `count` most likely tokens, and any that tie with the last of them."""
    if count >= len(probabilities):
        return probabilities
    least = np.partition(probabilities, -count)[-count]
    return _renormalised(np.where(probabilities >= least, probabilities, 0))


def _keep_top_p(probabilities: HostFloats, mass: float) -> HostFloats:
    """The fewest most likely tokens that reach `mass`; of equals, the lower id goes first."""
    order = np.argsort(-probabilities, kind="stable")
    before = np.cumsum(probabilities[order], dtype=np.float64) - probabilities[order]
    kept = np.zeros_like(probabilities)
    chosen = order[before < mass]
    kept[chosen] = probabilities[chosen]
    return _renormalised(kept)


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """The logarithm of a token's probability, and the likeliest alternatives, best first."""

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...]


def logprob(logits: HostFloats, token: int, alternatives: int) -> TokenLogprob:
    """`token`'s log-probability by the model itself, from unprocessed `logits` [V]."""
    wide = logits.astype(np.float64)
    shifted = wide - wide.max()
    logs = shifted - np.log(np.exp(shifted).sum())
    best = np.argsort(-logs, kind="stable")[:alternatives]
    return TokenLogprob(token, float(logs[token]), tuple((int(i), float(logs[i])) for i in best))
