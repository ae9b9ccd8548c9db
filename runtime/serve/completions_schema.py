"""What `/v1/completions` takes and gives."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import BaseModel, Field

from dspark.runtime.serve.schema import FinishReason, TextRequest, TokenId, Usage

TokenIds = Annotated[list[TokenId], Field(min_length=1)]


class CompletionRequest(TextRequest):
    """A text, or token ids, to be continued; or several of either."""

    UNSUPPORTED: ClassVar[dict[str, str]] = TextRequest.UNSUPPORTED | {
        "best_of": "every choice is returned, so ask for `n`",
        "suffix": "a prompt is only continued",
    }

    prompt: (
        str
        | TokenIds
        | Annotated[list[str], Field(min_length=1)]
        | Annotated[list[TokenIds], Field(min_length=1)]
    )
    max_tokens: Annotated[int, Field(ge=1)] | None = Field(None, description="16 if not given.")
    echo: bool | None = Field(None, description="The prompt's text first.")
    logprobs: Annotated[int, Field(ge=0, le=20)] | None = Field(
        None, description="Alternatives per token; the token's own log-probability comes along."
    )


class CompletionLogprobs(BaseModel):
    """Log-probabilities, one entry a token."""

    tokens: list[str]
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float]]
    text_offset: list[int]


class CompletionChoice(BaseModel):
    """One continuation, or a piece of it."""

    index: int
    text: str
    logprobs: CompletionLogprobs | None
    finish_reason: FinishReason | None
    token_ids: list[int] | None = None


class CompletionReply(BaseModel):
    """The whole answer, or a chunk of a stream."""

    id: str
    object: Literal["text_completion"] = "text_completion"
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: Usage | None = None
    """In a stream, null but for the last chunk, and only there if it was asked for."""
