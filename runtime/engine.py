"""The engine: requests in, tokens out, any number of them at a time."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from dspark.runtime.cache import PagePool
from dspark.runtime.calibration import ConfidenceRound
from dspark.runtime.choices import SeededChoices
from dspark.runtime.completion import Completion, completion
from dspark.runtime.engine_config import EngineConfig
from dspark.runtime.errors import InvalidRequest
from dspark.runtime.models.block_draft import BlockDraft
from dspark.runtime.models.qwen3 import Qwen3Target
from dspark.runtime.params import SamplingParams
from dspark.runtime.request import Request, TokenEvent
from dspark.runtime.request_check import check_drafts, check_request
from dspark.runtime.round import Models, Round
from dspark.runtime.sampling import History
from dspark.runtime.scheduler import Scheduler
from dspark.runtime.statistics import CacheStatistics, EngineStatistics, RequestStatistics
from dspark.runtime.text import Decode, TextStream

if TYPE_CHECKING:
    from dspark.runtime.device_round.round import DeviceRound


class Engine:
    """Decodes with a target, and with a draft where there is one; the text is the same.

    `decode` turns token ids into text; without it, texts are empty and stop strings are refused.
    Not thread-safe: use `AsyncEngine` in a service.

    Raises:
        InvalidRequest: `config.drafts` is more than the draft's block holds, or `config.max_length`
            more than the target or the draft was made for.
    """

    def __init__(
        self,
        target: Qwen3Target,
        draft: BlockDraft | None,
        config: EngineConfig,
        decode: Decode | None = None,
    ) -> None:
        longest = min(model.max_length for model in (target, draft) if model is not None)
        if config.max_length > longest:
            raise InvalidRequest(
                f"`max_length` is {config.max_length}, and the models were made for {longest}"
                " positions"
            )
        self.config = config
        self._vocab_size = target.config.vocab_size
        self._decode = decode
        self._block = 0 if draft is None else draft.config.drafts_per_round
        self._drafts = self._block if config.drafts is None else self._checked(config.drafts)
        self._pool = PagePool(config.pages, config.page_size, reuse_prefixes=config.reuse_prefixes)
        self._scheduler = Scheduler(
            self._pool,
            max_batch=config.max_batch,
            prefill_tokens=config.prefill_tokens,
            lookahead=0 if draft is None else draft.config.block_size,
        )
        self.statistics = EngineStatistics()
        self._models = Models(
            target,
            target.new_store(config.pages, config.page_size),
            draft,
            None if draft is None else draft.new_store(config.pages, config.page_size),
        )
        self._round = self._make_round()
        self._next_id = 0
        self._requests: dict[int, Request] = {}

    def submit(
        self,
        prompt: Sequence[int],
        params: SamplingParams,
        *,
        drafts: int | None = None,
    ) -> int:
        """The id of a new request for the token ids `prompt`; `step` will work on it.

        `drafts` is how many drafts its rounds verify, 0 for none; None leaves it to the engine.

        Raises:
            InvalidRequest: the prompt is empty, too long or holds an id that the target lacks, the
                parameters name such an id or forbid all, or `drafts` is more than the block holds.
        """
        check_request(
            prompt,
            params,
            self.config,
            vocab_size=self._vocab_size,
            has_tokenizer=self._decode is not None,
            most_biases=self._round.most_biases,
        )
        seed = secrets.randbits(64) if params.seed is None else params.seed
        stop_ids = params.stop_token_ids
        if not params.ignore_eos:
            stop_ids = stop_ids | self.config.eos_token_ids
        request = Request(
            id=self._next_id,
            params=params,
            tokens=list(prompt),
            limit=min(params.max_tokens, self.config.max_length - len(prompt)),
            drafts=self._drafts if drafts is None else self._checked(drafts),
            choices=SeededChoices(seed),
            text=TextStream(self._decode or _no_text, params.stop),
            stop_ids=stop_ids,
            history=History(frozenset(prompt)),
            statistics=RequestStatistics(prompt_tokens=len(prompt)),
        )
        if not self._scheduler.fits(request):
            raise InvalidRequest(
                f"the request needs room for {self._scheduler.positions(request)} positions, the"
                f" engine has {self.config.pages} pages of {self.config.page_size}"
            )
        self._next_id += 1
        self._requests[request.id] = request
        self._scheduler.waiting.append(request)
        self.statistics.requests += 1
        self.statistics.prompt_tokens += len(prompt)
        return request.id

    @property
    def busy(self) -> bool:
        """Whether any request is unfinished."""
        return bool(self._requests)

    def step(self) -> list[TokenEvent]:
        """Runs one pass; the news of every request that got any.

        Raises:
            NonFiniteLogits: the target's logits are not numbers; no request can go on.
        """
        for request in self._scheduler.admit():
            self.statistics.cached_tokens += request.statistics.cached_tokens
        parts = self._scheduler.work()
        if not parts:
            return []
        self._round.run(parts)
        changed = [part.request for part in parts if part.request.news]
        for request in changed:
            if request.finish_reason is not None:
                self._close(request)
        return [request.event() for request in changed]

    def cancel(self, request_id: int) -> TokenEvent | None:
        """Ends a request now; its last event, or None if it has ended already."""
        request = self._requests.get(request_id)
        if request is None:
            return None
        request.finish("cancelled")
        self._close(request)
        return request.event()

    def stream(
        self, prompt: Sequence[int], params: SamplingParams, *, drafts: int | None = None
    ) -> Iterator[TokenEvent]:
        """The events of one request as they come; leaving the loop early cancels it.

        Other requests move on at the same time, but their events are lost: use `step` for several.
        """
        request_id = self.submit(prompt, params, drafts=drafts)
        try:
            while request_id in self._requests:
                yield from (event for event in self.step() if event.request_id == request_id)
        finally:
            self.cancel(request_id)

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        params: SamplingParams | Sequence[SamplingParams],
        *,
        drafts: int | None = None,
    ) -> list[Completion]:
        """The completions of all prompts, in their order; `params` are theirs, or one for all.

        When one cannot be served, none is.
        """
        each = [params] * len(prompts) if isinstance(params, SamplingParams) else params
        requests: list[Request] = []
        events: dict[int, list[TokenEvent]] = {}
        try:
            for prompt, wanted in zip(prompts, each, strict=True):
                request_id = self.submit(prompt, wanted, drafts=drafts)
                requests.append(self._requests[request_id])
                events[request_id] = []
            while any(request_id in self._requests for request_id in events):
                for event in self.step():
                    if event.request_id in events:
                        events[event.request_id].append(event)
        finally:
            for request_id in events:
                self.cancel(request_id)
        return [completion(request, events[request.id]) for request in requests]

    def request_statistics(self, request_id: int) -> RequestStatistics:
        """The counts of an unfinished request; they stay readable after its end.

        Raises:
            KeyError: there is no such unfinished request.
        """
        return self._requests[request_id].statistics

    @property
    def vocab_size(self) -> int:
        """How many token ids the target has."""
        return self._vocab_size

    @property
    def has_tokenizer(self) -> bool:
        """Whether its events have text."""
        return self._decode is not None

    @property
    def waiting(self) -> int:
        """How many requests wait for pages, or for a place in the batch."""
        return len(self._scheduler.waiting)

    @property
    def running(self) -> int:
        """How many requests have pages and take part in passes."""
        return len(self._scheduler.running)

    @property
    def pages_held(self) -> int:
        """How many pages unfinished requests hold."""
        return self._pool.held

    @property
    def cache_statistics(self) -> CacheStatistics:
        """Who holds the pages now, and how much memory the two models' pools take."""
        pool, draft_store = self._pool, self._models.draft_store
        return CacheStatistics(
            pool.count,
            pool.held,
            pool.kept,
            self._models.target_store.nbytes,
            0 if draft_store is None else draft_store.nbytes,
        )

    def record_confidence(self) -> list[ConfidenceRound]:
        """A list that every round adds to from now on, for `calibration.fit_temperatures`.

        Only rounds of an engine with a `schedule` and of a draft with a confidence head are added.
        """
        self._round.recorded = []
        return self._round.recorded

    def _make_round(self) -> Round | DeviceRound:
        shared = self._models, self._pool, self.config.schedule, self.statistics
        if not self._models.target.backend.rounds_on_device:
            return Round(*shared)
        from dspark.runtime.device_round.round import DeviceRound

        config = self.config
        return DeviceRound(*shared, max_batch=config.max_batch, max_length=config.max_length)

    def _checked(self, drafts: int) -> int:
        check_drafts(drafts, self._block)
        return drafts

    def _close(self, request: Request) -> None:
        self._scheduler.remove(request)
        del self._requests[request.id]
        self.statistics.finished += 1
        self.statistics.acceptance.add(request.statistics.acceptance)


def _no_text(ids: list[int]) -> str:  # noqa: ARG001 - the signature of a tokenizer's
    return ""
