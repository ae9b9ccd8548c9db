"""What `/v1/chat/completions` takes and gives."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from dspark.runtime.serve.schema import NO_TOOLS, TEXT_ONLY, FinishReason, TextRequest, Usage

TemplateValue = str | int | float | bool | None


class TextPart(BaseModel):
    """A piece of a message's text."""

    model_config = ConfigDict(extra="forbid", strict=True)

    type: Literal["text"]
    text: str


class Message(BaseModel):
    """One turn of the conversation."""

    model_config = ConfigDict(extra="forbid", strict=True)

    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[TextPart] = Field(description="Several parts are joined by line breaks.")
    name: str | None = Field(None, description="Given to the template.")

    @model_validator(mode="before")
    @classmethod
    def _drop_nulls(cls, message: object) -> object:
        """What an earlier answer held besides its text comes back as nulls."""
        if not isinstance(message, dict):
            return message
        return {name: value for name, value in message.items() if value is not None}

    def to_template(self) -> dict[str, str]:
        """The message as chat templates expect it."""
        parts = self.content
        text = parts if isinstance(parts, str) else "\n".join(part.text for part in parts)
        made = {"role": self.role, "content": text}
        return made if self.name is None else made | {"name": self.name}


class ChatRequest(TextRequest):
    """A conversation to be answered."""

    UNSUPPORTED: ClassVar[dict[str, str]] = TextRequest.UNSUPPORTED | {
        "audio": TEXT_ONLY,
        "function_call": NO_TOOLS,
        "functions": NO_TOOLS,
        "modalities": TEXT_ONLY,
        "parallel_tool_calls": NO_TOOLS,
        "prediction": "the draft model predicts",
        "reasoning_effort": "use `chat_template_kwargs`, if the template has a switch for it",
        "response_format": TEXT_ONLY,
        "tool_choice": NO_TOOLS,
        "tools": NO_TOOLS,
        "verbosity": "the model decides how much it writes",
        "web_search_options": "the model has nothing but its prompt",
    }
    INERT: ClassVar[dict[str, Any]] = TextRequest.INERT | {
        "modalities": ["text"],
        "response_format": {"type": "text"},
        "tool_choice": "none",
        "tools": [],
    }

    messages: Annotated[list[Message], Field(min_length=1, max_length=4096)]
    max_tokens: Annotated[int, Field(ge=1)] | None = Field(
        None, description="The older name of `max_completion_tokens`."
    )
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = Field(
        None, description="All that fits behind the prompt if not given."
    )
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = Field(
        None, description="Alternatives per token; needs `logprobs`."
    )
    chat_template_kwargs: Annotated[dict[str, TemplateValue], Field(max_length=32)] | None = Field(
        None, description="Variables for the template, such as `enable_thinking`."
    )


class TopLogprob(BaseModel):
    """A token and the logarithm of its probability."""

    token: str
    logprob: float
    bytes: list[int]


class ChatLogprob(TopLogprob):
    """The token that was put out, and the likeliest there."""

    top_logprobs: list[TopLogprob]


class ChatLogprobs(BaseModel):
    """Log-probabilities, one entry a token."""

    content: list[ChatLogprob]
    refusal: None = None


class Answer(BaseModel):
    """What the model says."""

    role: Literal["assistant"] = "assistant"
    content: str
    refusal: None = None


class ChatChoice(BaseModel):
    """One answer."""

    index: int
    message: Answer
    logprobs: ChatLogprobs | None
    finish_reason: FinishReason
    token_ids: list[int] | None = None


class ChatReply(BaseModel):
    """The whole answer."""

    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    choices: list[ChatChoice]
    usage: Usage


class Delta(BaseModel):
    """What is new; the first of a choice has the role."""

    role: Literal["assistant"] = "assistant"
    content: str = ""


class ChatChunkChoice(BaseModel):
    """News of one answer."""

    index: int
    delta: Delta
    logprobs: ChatLogprobs | None
    finish_reason: FinishReason | None
    token_ids: list[int] | None = None


class ChatChunk(BaseModel):
    """A chunk of a stream."""

    id: str
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    created: int
    model: str
    choices: list[ChatChunkChoice]
    usage: Usage | None = None
