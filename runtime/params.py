"""How a request wants its tokens chosen, and when it wants them to end."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from dspark.runtime.errors import InvalidRequest

# Below this, logits divided by the temperature leave float32's range.
GREEDY_BELOW = 1e-5

# Beyond this, several of a request's numbers together could leave float32's range; no logit comes
# near it.
LARGEST = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """One request's sampling and stopping.

    Processing order: `repetition_penalty` (prompt and output), `presence_penalty` and
    `frequency_penalty` (output), `logit_bias` (by token id), `temperature`, `top_k`, `top_p`,
    `min_p`; each works on what the one before it left. `temperature` 0 takes the most likely
    token. `top_k` 0, `top_p` 1 and `min_p` 0 are off.

    `seed` makes the text reproducible; without one, the engine draws one. `logprobs` asks for that
    many alternatives beside each token, by the model's own distribution before any processing; 0
    asks for the token's alone. `stop` strings are cut off the text, `stop_token_ids` end it in
    addition to the model's end-of-text ids, which `ignore_eos` disregards.

    Raises:
        InvalidRequest: a value is out of range.
    """

    max_tokens: int
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    seed: int | None = None
    logprobs: int | None = None
    stop: tuple[str, ...] = ()
    stop_token_ids: frozenset[int] = frozenset()
    ignore_eos: bool = False

    def __post_init__(self) -> None:
        for name, good, meaning in (
            ("max_tokens", self.max_tokens >= 1, "at least 1"),
            ("temperature", 0 <= self.temperature <= LARGEST, "a number from 0 to 1e9"),
            ("top_k", self.top_k >= 0, "0 or more"),
            ("top_p", 0 < self.top_p <= 1, "above 0 and at most 1"),
            ("min_p", 0 <= self.min_p <= 1, "from 0 to 1"),
            ("repetition_penalty", 1e-9 <= self.repetition_penalty <= LARGEST, "from 1e-9 to 1e9"),
            ("presence_penalty", abs(self.presence_penalty) <= LARGEST, "from -1e9 to 1e9"),
            ("frequency_penalty", abs(self.frequency_penalty) <= LARGEST, "from -1e9 to 1e9"),
            ("logprobs", self.logprobs is None or self.logprobs >= 0, "0 or more"),
        ):
            if not good:
                raise InvalidRequest(f"`{name}` must be {meaning}, not `{getattr(self, name)}`")
        if "" in self.stop:
            raise InvalidRequest("a `stop` string must not be empty")
        for token, bias in self.logit_bias.items():
            if not (abs(bias) <= LARGEST or bias == -math.inf):
                raise InvalidRequest(
                    f"the `logit_bias` of token `{token}` must be from -1e9 to 1e9, or `-inf` to"
                    f" forbid it, not `{bias}`"
                )

    @property
    def greedy(self) -> bool:
        """Whether the most likely token is taken, so that nothing is drawn."""
        return self.temperature < GREEDY_BELOW

    @property
    def processes_logits(self) -> bool:
        """Whether anything but the temperature and the cuts changes the logits."""
        return bool(
            self.repetition_penalty != 1.0
            or self.presence_penalty
            or self.frequency_penalty
            or self.logit_bias
        )
