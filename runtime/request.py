"""One request: what it asked for, how far it has come, and what its caller is told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from dspark.runtime.cache import PageTable
from dspark.runtime.choices import Choices
from dspark.runtime.params import SamplingParams
from dspark.runtime.sampling import History, TokenLogprob
from dspark.runtime.statistics import RequestStatistics
from dspark.runtime.text import TextStream

FinishReason = Literal["stop", "length", "cancelled"]


@dataclass(frozen=True, slots=True)
class TokenEvent:
    """News of a request: the tokens and the text of one pass.

    `text` may lag behind the tokens, while it could still be part of a stop string or of a
    character. The last event of a request has a `finish_reason` and may be without tokens.
    """

    request_id: int
    token_ids: tuple[int, ...]
    text: str
    logprobs: tuple[TokenLogprob, ...] = ()
    finish_reason: FinishReason | None = None


@dataclass(slots=True)
class Request:
    """A request on its way through the engine.

    `tokens` are the prompt's and then its own; all but the newest are or will be in the caches.
    `limit` is the most tokens that it may put out, `drafts` how many it wants per round (0: none).
    """

    id: int
    params: SamplingParams
    tokens: list[int]
    limit: int
    drafts: int
    choices: Choices
    text: TextStream
    stop_ids: frozenset[int]
    history: History
    statistics: RequestStatistics
    table: PageTable | None = None
    finish_reason: FinishReason | None = None
    news: list[int] = field(default_factory=list)
    news_text: str = ""
    news_logprobs: list[TokenLogprob] = field(default_factory=list)

    @property
    def held(self) -> PageTable:
        """The request's pages, which it has from its admission to its end."""
        # INVARIANT: only admitted requests take part in a pass.
        assert self.table is not None
        return self.table

    @property
    def pending(self) -> int:
        """How many known tokens are in no cache yet: what is left of the prompt, or the anchor."""
        return len(self.tokens) - self.held.length

    @property
    def put_out(self) -> int:
        """How many tokens the caller has got."""
        return self.statistics.completion_tokens

    @property
    def left(self) -> int:
        """How many more tokens it may put out."""
        return self.limit - self.put_out

    def take(self, tokens: Sequence[int], logprobs: Sequence[TokenLogprob] = ()) -> int:
        """Puts out `tokens` in order, up to and with the one that ends the request.

        Returns how many those are. The order matters: a stop before the cap is a stop, and what
        follows either is nowhere to be seen.
        """
        for count, token in enumerate(tokens, 1):
            self.tokens.append(token)
            self.history.add(token)
            self.statistics.completion_tokens += 1
            self.news.append(token)
            if logprobs:
                self.news_logprobs.append(logprobs[count - 1])
            if token in self.stop_ids:
                self.finish("stop")
            else:
                self.news_text += self.text.push(token)
                if self.text.stopped:
                    self.finish("stop")
                elif self.left == 0:
                    self.finish("length")
            if self.finish_reason is not None:
                return count
        return len(tokens)

    def finish(self, reason: FinishReason) -> None:
        """Ends the request; text that was held back is released, unless a stop string cut it."""
        self.news_text += self.text.finish()
        # The last characters may complete a stop string that a held-back byte was hiding.
        self.finish_reason = "stop" if self.text.stopped else reason

    def event(self) -> TokenEvent:
        """The news since the last event."""
        event = TokenEvent(
            self.id,
            tuple(self.news),
            self.news_text,
            tuple(self.news_logprobs),
            self.finish_reason,
        )
        self.news, self.news_text, self.news_logprobs = [], "", []
        return event
