"""What a request must be like to be served at all."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from dspark.runtime.engine_config import EngineConfig
from dspark.runtime.errors import InvalidRequest
from dspark.runtime.params import SamplingParams


def check_request(
    prompt: Sequence[int],
    params: SamplingParams,
    config: EngineConfig,
    *,
    vocab_size: int,
    has_tokenizer: bool,
    most_biases: int | None = None,
) -> None:
    """Nothing, if an engine of this `config` can serve the request.

    `most_biases` is how many tokens a `logit_bias` may name, None if any number.

    Raises:
        InvalidRequest: it cannot; the message says why.
    """
    if not prompt:
        raise InvalidRequest("the prompt has no tokens")
    if len(prompt) >= config.max_length:
        raise InvalidRequest(
            f"the prompt has {len(prompt)} tokens, and {config.max_length} is the most"
            " that prompt and output may have together"
        )
    if params.stop and not has_tokenizer:
        raise InvalidRequest(
            "`stop` strings need a tokenizer, which the engine was not given", "stop"
        )
    _check_ids(None, prompt, vocab_size)
    _check_ids("logit_bias", params.logit_bias, vocab_size)
    _check_ids("stop_token_ids", params.stop_token_ids, vocab_size)
    if most_biases is not None and len(params.logit_bias) > most_biases:
        raise InvalidRequest(
            f"`logit_bias` names {len(params.logit_bias)} tokens, and this device takes up to"
            f" {most_biases}",
            "logit_bias",
        )
    if sum(bias == -math.inf for bias in params.logit_bias.values()) == vocab_size:
        raise InvalidRequest("`logit_bias` forbids every token", "logit_bias")


def check_drafts(drafts: int, most: int) -> None:
    """Nothing, if a round can verify that many drafts; `most` is 0 without a draft.

    Raises:
        InvalidRequest: it cannot.
    """
    if 0 <= drafts <= most:
        return
    if not most:
        message = f"`drafts` must be 0 where no draft was given, not `{drafts}`"
    else:
        message = (
            f"`drafts` must be from 0 to {most}, which is what the draft's block holds, not"
            f" `{drafts}`"
        )
    raise InvalidRequest(message, "drafts")


def _check_ids(param: str | None, ids: Collection[int], vocab_size: int) -> None:
    for token in ids:
        if not 0 <= token < vocab_size:
            where = "the prompt" if param is None else f"`{param}`"
            raise InvalidRequest(
                f"{where} holds token `{token}`, and the target's ids end at {vocab_size - 1}",
                param,
            )
