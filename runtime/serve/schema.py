"""What requests and answers of both text endpoints share."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from dspark.runtime.params import SamplingParams

SEED_BITS = 63
TokenId = Annotated[int, Field(ge=0, lt=2**31)]
TokenKey = Annotated[str, StringConstraints(pattern=r"^(0|[1-9][0-9]{0,8})$")]
StopString = Annotated[str, Field(min_length=1, max_length=1000)]

NO_TOOLS = "this server does not parse calls from the text"
TEXT_ONLY = "this server answers in free text only"


class StreamOptions(BaseModel):
    """How a stream is to look."""

    model_config = ConfigDict(extra="forbid", strict=True)

    include_usage: bool | None = Field(
        None, description="One more chunk at the end, with the request's token counts."
    )


class TextRequest(BaseModel):
    """The fields that completions and chat completions share."""

    model_config = ConfigDict(extra="forbid", strict=True)

    UNSUPPORTED: ClassVar[dict[str, str]] = {
        "metadata": "nothing is stored",
        "service_tier": "there is one tier",
        "store": "nothing is stored",
    }
    INERT: ClassVar[dict[str, Any]] = {"service_tier": "auto", "store": False}
    """Values by which a caller says that an unsupported field is not used; null always does."""

    model: str = Field(description="An id that `/v1/models` lists.")
    n: Annotated[int, Field(ge=1, le=128)] | None = Field(
        None, description="How many choices; 1 if not given. The i-th has the seed plus i."
    )
    stream: bool | None = Field(None, description="Server-sent events instead of one answer.")
    stream_options: StreamOptions | None = Field(None, description="Only with `stream`.")
    temperature: Annotated[float, Field(ge=0, le=2)] | None = Field(
        None, description="0 takes the likeliest token; 1 if not given."
    )
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=0)] | None = Field(None, description="0 is off.")
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    presence_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    frequency_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    repetition_penalty: Annotated[float, Field(ge=0.01, le=100)] | None = None
    logit_bias: (
        Annotated[dict[TokenKey, Annotated[float, Field(ge=-100, le=100)]], Field(max_length=1024)]
        | None
    ) = Field(None, description="Token ids, as strings, and what is added to their logits.")
    seed: Annotated[int, Field(ge=-(2**SEED_BITS), lt=2**SEED_BITS)] | None = Field(
        None, description="The same seed and request give the same text."
    )
    stop: StopString | Annotated[list[StopString], Field(max_length=16)] | None = None
    stop_token_ids: Annotated[list[TokenId], Field(max_length=128)] | None = None
    ignore_eos: bool | None = None
    drafts: Annotated[int, Field(ge=0)] | None = Field(
        None, description="Drafts a round verifies, 0 for none. Text is as likely either way."
    )
    return_token_ids: bool | None = Field(
        None, description="Also the token ids of each choice, as `token_ids`."
    )
    user: str | None = Field(None, description="Accepted and not used.")

    @model_validator(mode="before")
    @classmethod
    def _drop_inert(cls, body: object) -> object:
        """Many clients send the fields they do not use as null."""
        if not isinstance(body, dict):
            return body
        return {
            name: value
            for name, value in body.items()
            if name not in cls.UNSUPPORTED
            or not (value is None or (name in cls.INERT and value == cls.INERT[name]))
        }

    @property
    def choices(self) -> int:
        """How many choices each prompt gets."""
        return self.n or 1

    def sampling(self, max_tokens: int, logprobs: int | None, choice: int) -> SamplingParams:
        """What the engine is asked for, for this choice of a prompt."""
        stops = (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())
        given = {
            name: value
            for name in (
                "temperature", "top_p", "top_k", "min_p", "presence_penalty", "frequency_penalty",
                "repetition_penalty", "ignore_eos",
            )
            if (value := getattr(self, name)) is not None
        }  # fmt: skip
        return SamplingParams(
            max_tokens=max_tokens,
            logprobs=logprobs,
            seed=None if self.seed is None else self.seed + choice,
            stop=stops,
            stop_token_ids=frozenset(self.stop_token_ids or ()),
            logit_bias={int(token): bias for token, bias in (self.logit_bias or {}).items()},
            **given,
        )


class Usage(BaseModel):
    """Tokens of a request; an end-of-text token counts."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int

    @classmethod
    def of(cls, prompt: int, completion: int) -> Usage:
        return cls(
            prompt_tokens=prompt, completion_tokens=completion, total_tokens=prompt + completion
        )


class ErrorDetail(BaseModel):
    """What is wrong."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorReply(BaseModel):
    """An answer that is an error."""

    error: ErrorDetail


FinishReason = Literal["stop", "length"]
