"""The prompts of a request as token ids, held against what the engine can take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from dspark.runtime.engine import Engine
from dspark.runtime.errors import InvalidRequest
from dspark.runtime.params import SamplingParams
from dspark.runtime.request_check import check_request
from dspark.runtime.serve.errors import ApiError
from dspark.runtime.serve.tokens import Tokens

PromptField = str | list[int] | list[str] | list[list[int]]


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt: its ids, the field of the request that holds it, and its text if it had one."""

    ids: tuple[int, ...]
    param: str
    text: str | None = None


def completion_prompts(field: PromptField, tokens: Tokens) -> list[Prompt]:
    """The prompts of a completion request. Blocks while it tokenises."""
    if isinstance(field, str):
        return [Prompt(tuple(tokens.encode([field], special=True)[0]), "prompt", field)]
    first = field[0]
    if isinstance(first, int):
        return [Prompt(tuple(cast("list[int]", field)), "prompt")]
    if isinstance(first, str):
        texts = cast("list[str]", field)
        encoded = tokens.encode(texts, special=True)
        return [
            Prompt(tuple(ids), f"prompt[{place}]", text)
            for place, (ids, text) in enumerate(zip(encoded, texts, strict=True))
        ]
    lists = cast("list[list[int]]", field)
    return [Prompt(tuple(ids), f"prompt[{place}]") for place, ids in enumerate(lists)]


def room(prompt: Prompt, max_length: int, asked: int | None, field: str) -> int:
    """How many tokens may follow the prompt: those that were `asked` for, or all that fit.

    Raises:
        ApiError: 400 `context_length_exceeded`.
    """
    used = len(prompt.ids)
    left = max_length - used
    if left < 1:
        raise ApiError(
            400,
            f"the prompt has {used} tokens, and {max_length} is the most that prompt and output may"
            " have together",
            code="context_length_exceeded",
            param=prompt.param,
        )
    if asked is None:
        return left
    if asked > left:
        raise ApiError(
            400,
            f"`{field}` is {asked}, and behind the {used} tokens of the prompt there is room for"
            f" {left}",
            code="context_length_exceeded",
            param=field,
        )
    return asked


def check(prompts: Sequence[tuple[Prompt, SamplingParams]], engine: Engine) -> None:
    """Nothing, if the engine will take all of them.

    The engine checks again; this is so that no answer begins before every prompt is known good.

    Raises:
        ApiError: 400, naming the prompt.
    """
    for prompt, params in prompts:
        try:
            check_request(
                prompt.ids,
                params,
                engine.config,
                vocab_size=engine.vocab_size,
                has_tokenizer=True,
            )
        except InvalidRequest as error:
            param = error.param or prompt.param
            raise ApiError(400, str(error), code="invalid_value", param=param) from None
