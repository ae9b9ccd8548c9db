"""The same prompts decoded with and without the draft, one at a time, by one engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from dspark.runtime.decode_one import Decoded, decode_one
from dspark.runtime.engine import Engine
from dspark.runtime.params import SamplingParams
from dspark.runtime.statistics import Acceptance


@dataclass(slots=True)
class Side:
    """What all prompts took in one of the two ways; `seconds` include reading the prompts."""

    tokens: int = 0
    seconds: float = 0.0
    acceptance: Acceptance = field(default_factory=Acceptance)

    def add(self, decoded: Decoded) -> None:
        """Adds one prompt."""
        self.tokens += len(decoded.token_ids)
        self.seconds += decoded.seconds
        self.acceptance.add(decoded.statistics.acceptance)

    @property
    def tokens_per_s(self) -> float:
        """Tokens put out per second."""
        return self.tokens / self.seconds


@dataclass(frozen=True, slots=True)
class Comparison:
    """Both ways; `same` counts the prompts with the same tokens in both."""

    prompts: int
    same: int
    with_draft: Side
    without_draft: Side

    @property
    def speedup(self) -> float:
        """How many times as many tokens per second the draft gives."""
        return self.with_draft.tokens_per_s / self.without_draft.tokens_per_s


def compare(
    engine: Engine,
    prompts: Sequence[Sequence[int]],
    params: SamplingParams,
    *,
    done: Callable[[], object] | None = None,
) -> Comparison:
    """Decodes every prompt both ways, in turns, so that a busy machine slows both alike.

    `done` is called after each prompt. Raises what `decode_one` raises.
    """
    # Kernels are made when they are first run, which is no prompt's fault.
    for drafts in (None, 0):
        decode_one(engine, prompts[0], params, drafts=drafts)
    with_draft, without_draft = Side(), Side()
    same = 0
    for number, prompt in enumerate(prompts):
        ways = [(with_draft, None), (without_draft, 0)]
        texts = []
        for side, drafts in ways if number % 2 else reversed(ways):
            decoded = decode_one(engine, prompt, params, drafts=drafts)
            side.add(decoded)
            texts.append(decoded.token_ids)
        same += texts[0] == texts[1]
        if done is not None:
            done()
    return Comparison(len(prompts), same, with_draft, without_draft)
