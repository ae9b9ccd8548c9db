"""The distribution that sampling parameters ask for, in float64 and without a thought for speed."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dspark.runtime.params import SamplingParams


def naive(
    logits: Sequence[float], params: SamplingParams, prompt: Sequence[int], output: Sequence[int]
) -> list[float]:
    scores = [float(logit) for logit in logits]
    for token in range(len(scores)):
        if token in prompt or token in output:
            worth = scores[token]
            factor = params.repetition_penalty
            scores[token] = worth / factor if worth > 0 else worth * factor
        count = list(output).count(token)
        scores[token] -= params.frequency_penalty * count
        scores[token] -= params.presence_penalty if count else 0
        scores[token] += params.logit_bias.get(token, 0.0)
    if params.temperature < 1e-5:
        best = scores.index(max(scores))
        return [float(token == best) for token in range(len(scores))]
    weights = [math.exp((score - max(scores)) / params.temperature) for score in scores]
    chances = [weight / sum(weights) for weight in weights]
    if params.top_k:
        least = sorted(chances)[-min(params.top_k, len(chances))]
        chances = [chance if chance >= least else 0 for chance in chances]
        chances = [chance / sum(chances) for chance in chances]
    if params.top_p < 1:
        kept, mass = set(), 0.0
        for chance, token in sorted((-chance, token) for token, chance in enumerate(chances)):
            if mass < params.top_p:
                kept.add(token)
                mass -= chance
        chances = [chance if token in kept else 0 for token, chance in enumerate(chances)]
        chances = [chance / sum(chances) for chance in chances]
    if params.min_p:
        least = params.min_p * max(chances)
        chances = [chance if chance >= least else 0 for chance in chances]
        chances = [chance / sum(chances) for chance in chances]
    return chances


PARAMS = {
    "temperature-1": SamplingParams(max_tokens=9),
    "temperature-0.3": SamplingParams(max_tokens=9, temperature=0.3),
    "temperature-2": SamplingParams(max_tokens=9, temperature=2.0),
    "temperature-0": SamplingParams(max_tokens=9, temperature=0.0),
    "top-k": SamplingParams(max_tokens=9, top_k=2),
    "top-p": SamplingParams(max_tokens=9, top_p=0.7),
    "min-p": SamplingParams(max_tokens=9, min_p=0.2),
    "repetition": SamplingParams(max_tokens=9, repetition_penalty=1.7),
    "presence": SamplingParams(max_tokens=9, presence_penalty=0.8),
    "frequency": SamplingParams(max_tokens=9, frequency_penalty=0.6),
    "bias": SamplingParams(max_tokens=9, logit_bias={0: -1.5, 1: 2.0, 2: -float("inf")}),
    "greedy-with-penalties": SamplingParams(
        max_tokens=9, temperature=0.0, frequency_penalty=0.9, logit_bias={1: 0.5}
    ),
    "all": SamplingParams(
        max_tokens=9,
        temperature=0.8,
        top_k=3,
        top_p=0.9,
        min_p=0.05,
        repetition_penalty=1.2,
        presence_penalty=0.3,
        frequency_penalty=0.2,
        logit_bias={1: 0.7},
    ),
}
