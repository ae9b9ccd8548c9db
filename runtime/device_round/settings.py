"""Sampling parameters as the kernels of sampling.cu take them, one place a request."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dspark.kernels.arrays import DeviceArray
from dspark.runtime.backends.cuda_scratch import Scratch
from dspark.runtime.params import SamplingParams
from dspark.runtime.sampling import History

FORBIDDEN = 2
"""What `distribution` says of a row whose every token the request's own biases forbid."""

MOST_BIASES = 1024
"""Tokens of which one request may shift the logits."""


class Settings(NamedTuple):
    """The arrays of `distribution` from `temperature` to `biases_of`, in its order."""

    temperature: DeviceArray
    top_k: DeviceArray
    top_p: DeviceArray
    min_p: DeviceArray
    repetition: DeviceArray
    presence: DeviceArray
    frequency: DeviceArray
    bias_tokens: DeviceArray
    biases_of: DeviceArray


def settings(scratch: Scratch, params: Sequence[SamplingParams], requests: int) -> Settings:
    """Those of `params`, and of places without a request behind them."""
    everyone = [*params, *[SamplingParams(max_tokens=1)] * (requests - len(params))]
    bias_tokens = np.full((requests, MOST_BIASES), -1, np.int32)
    biases_of = np.zeros((requests, MOST_BIASES), np.float32)
    for row, each in enumerate(params):
        count = len(each.logit_bias)
        bias_tokens[row, :count] = list(each.logit_bias)
        biases_of[row, :count] = list(each.logit_bias.values())

    def floats(name: str, values: Sequence[float]) -> DeviceArray:
        return scratch.filled(name, values, "f32")

    return Settings(
        floats("temperature", [0.0 if each.greedy else each.temperature for each in everyone]),
        scratch.filled("top_k", [min(each.top_k, 2**31 - 1) for each in everyone]),
        # In units of 2^-62, rounded up, as the kernel adds chances up.
        scratch.filled("top_p", [math.ceil(each.top_p * 2**62) for each in everyone], "u64"),
        floats("min_p", [each.min_p for each in everyone]),
        floats("repetition", [each.repetition_penalty for each in everyone]),
        floats("presence", [each.presence_penalty for each in everyone]),
        floats("frequency", [each.frequency_penalty for each in everyone]),
        scratch.filled("bias_tokens", bias_tokens),
        scratch.filled("biases_of", biases_of, "f32"),
    )


def penalises(params: SamplingParams) -> bool:
    """Whether it matters what was put out before."""
    return bool(
        params.repetition_penalty != 1.0 or params.presence_penalty or params.frequency_penalty
    )


def history_row(history: History, vocab: int) -> npt.NDArray[np.int32]:
    """[vocab]: for each token twice how often it was put out, plus 1 where the prompt has it."""
    row = np.zeros(vocab, np.int32)
    for token, count in history.output.items():
        row[token] = 2 * count
    row[list(history.prompt)] += 1
    return row
