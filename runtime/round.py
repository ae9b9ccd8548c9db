"""The speculative round, written once for any backend, lane and kind of sampling.

Propose: the draft guesses. Verify: the target runs the newest token and the guesses in one pass,
beside whatever prompt tokens are due. Commit: what the target agrees with is kept, plus one token
of its own; both caches are cut back to that, request by request.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter

import numpy as np

from dspark.runtime.acceptance import NOTHING, Proposal, accept_greedy, accept_sampled
from dspark.runtime.backends.base import Array, HostFloats, HostInts, KvStore
from dspark.runtime.cache import PagePool
from dspark.runtime.confidence import ConfidenceSchedule
from dspark.runtime.errors import NonFiniteLogits
from dspark.runtime.models.block_draft import BlockDraft
from dspark.runtime.models.qwen3 import Qwen3Target
from dspark.runtime.models.rows import Segment
from dspark.runtime.propose import propose
from dspark.runtime.request import Request
from dspark.runtime.sampling import distribution, logprob
from dspark.runtime.scheduler import Work
from dspark.runtime.statistics import EngineStatistics


@dataclass(frozen=True, slots=True)
class Models:
    """A target with its store, and the draft with its own, if there is one."""

    target: Qwen3Target
    target_store: KvStore
    draft: BlockDraft | None
    draft_store: KvStore | None


@dataclass(frozen=True, slots=True)
class _Verified:
    """What the target says about one request's rows.

    `best[i]` is its likeliest token after i drafts; `logits[i]` [V] what it was read from, fetched
    from the device only for those who need more than the likeliest.
    """

    best: HostInts
    logits: Callable[[], HostFloats]


class Round:
    """Runs passes over the same models and pages; see the module."""

    def __init__(
        self,
        models: Models,
        pool: PagePool,
        schedule: ConfidenceSchedule | None,
        statistics: EngineStatistics,
    ) -> None:
        self._models = models
        self._pool = pool
        self._schedule = schedule
        self._statistics = statistics

    def run(self, parts: Sequence[Work]) -> None:
        """One pass: afterwards every request has its new tokens, and may have ended.

        Raises:
            NonFiniteLogits: the target's logits are not numbers.
        """
        with self._models.target.backend.session():
            self._pass(parts)

    def _pass(self, parts: Sequence[Work]) -> None:
        started = perf_counter()
        proposals = self._propose(parts)
        proposed = perf_counter()
        segments = [
            _segment(part, proposal) for part, proposal in zip(parts, proposals, strict=True)
        ]
        target = self._models.target
        passed = target.forward(segments, self._models.target_store)
        verified = self._read(parts, proposals, passed.hidden)
        seen = perf_counter()
        for part, proposal, result in zip(parts, proposals, verified, strict=True):
            if result is not None:
                self._decide(part.request, proposal, result)
        decided = perf_counter()
        self._commit(parts, segments, passed.features)
        committed = perf_counter()
        counts = self._statistics
        counts.passes += 1
        counts.draft_s += (proposed - started) + (committed - decided)
        counts.verify_s += seen - proposed
        counts.host_s += decided - seen

    def _propose(self, parts: Sequence[Work]) -> list[Proposal]:
        draft, store = self._models.draft, self._models.draft_store
        proposals = [NOTHING] * len(parts)
        if draft is None or store is None:
            return proposals
        counts = [_drafts_wanted(part, draft) for part in parts]
        drafting = [index for index, count in enumerate(counts) if count]
        if not drafting:
            return proposals
        made = propose(
            draft,
            store,
            [parts[index].request for index in drafting],
            [counts[index] for index in drafting],
            self._schedule,
        )
        lengths = self._lengths(parts, made)
        for index, proposal, length in zip(drafting, made, lengths, strict=True):
            proposals[index] = proposal.first(length)
        return proposals

    def _lengths(self, parts: Sequence[Work], made: Sequence[Proposal]) -> list[int]:
        """How much of each proposal is verified; all of it without a schedule or a head."""
        chances = [proposal.survival for proposal in made]
        known = [row for row in chances if row is not None]
        if self._schedule is None or len(known) < len(made):
            return [len(proposal.tokens) for proposal in made]
        others = sum(part.tokens for part in parts) - len(made)
        return self._schedule.lengths(known, others)

    def _read(
        self, parts: Sequence[Work], proposals: Sequence[Proposal], hidden: Array
    ) -> list[_Verified | None]:
        """The target's word on every request whose next token is due; None for the others."""
        rows: list[int] = []
        spans: list[tuple[int, int] | None] = []
        row = 0
        for part, proposal in zip(parts, proposals, strict=True):
            row += part.tokens
            drafts = len(proposal.tokens)
            spans.append((len(rows), len(rows) + drafts + 1) if part.decides else None)
            if part.decides:
                rows += range(row - 1, row + drafts)
            row += drafts
        if not rows:
            return [None] * len(parts)
        target = self._models.target
        logits = target.logits(target.backend.take(hidden, rows))
        best, values = target.backend.argmax(logits)
        if not np.isfinite(values).all():
            raise NonFiniteLogits("the target's logits are not finite numbers")

        def verified(begin: int, end: int) -> _Verified:
            return _Verified(best[begin:end], lambda: target.backend.host(logits[begin:end]))

        return [None if span is None else verified(*span) for span in spans]

    def _decide(self, request: Request, proposal: Proposal, result: _Verified) -> None:
        """Puts out the accepted drafts and the target's own token."""
        params = request.params
        needs_logits = not params.greedy or params.processes_logits or params.logprobs is not None
        logits = result.logits() if needs_logits else None
        if logits is None or (params.greedy and not params.processes_logits):
            tokens = accept_greedy(proposal.tokens, [int(token) for token in result.best])
        else:
            tokens = _draw(request, proposal, logits)
        notes = []
        if logits is not None and params.logprobs is not None:
            notes = [
                logprob(logits[row], token, params.logprobs) for row, token in enumerate(tokens)
            ]
        first = request.put_out == 0
        count = request.take(tokens, notes)
        self._statistics.completion_tokens += count
        if first:
            return
        drafts = len(proposal.tokens)
        request.statistics.acceptance.count(drafts, count, last_is_draft=count < len(tokens))
        if drafts:
            self._statistics.count_drafted_round(count)

    def _commit(
        self, parts: Sequence[Work], segments: Sequence[Segment], features: Array | None
    ) -> None:
        """Cuts both caches to what was committed, and gives the draft its new context."""
        draft, store = self._models.draft, self._models.draft_store
        kept_rows: list[int] = []
        kept: list[Segment] = []
        row = 0
        for part, segment in zip(parts, segments, strict=True):
            request = part.request
            # The newest token has been through neither model yet.
            length = len(request.tokens) - 1 if part.decides else segment.end
            rows = length - segment.start
            if request.drafts:
                kept_rows += range(row, row + rows)
                kept.append(Segment(segment.tokens[:rows], segment.start, segment.pages))
            row += len(segment.tokens)
            self._pool.commit(request.held, request.tokens, length)
        if draft is not None and store is not None and features is not None and kept:
            draft.extend(draft.backend.take(features, kept_rows), kept, store)


def _drafts_wanted(part: Work, draft: BlockDraft) -> int:
    """How many drafts the request gets this round.

    No more than it can still put out besides the target's token, and none behind the positions
    that the draft was made for.
    """
    request = part.request
    if not request.drafts or not part.decides or request.put_out == 0:
        return 0
    if len(request.tokens) - 1 + draft.config.block_size > draft.config.max_position_embeddings:
        request.statistics.acceptance.draft_skipped["length"] += 1
        return 0
    return min(request.drafts, request.left - 1)


def _segment(part: Work, proposal: Proposal) -> Segment:
    request = part.request
    start = request.held.length
    tokens = [*request.tokens[start : start + part.tokens], *proposal.tokens]
    return Segment(tokens, start, request.held.pages)


def _draw(request: Request, proposal: Proposal, logits: HostFloats) -> list[int]:
    def target_distribution(after: int) -> HostFloats:
        history = request.history.followed_by(proposal.tokens[:after])
        return distribution(logits[after], request.params, history)

    place = len(request.tokens)
    return accept_sampled(proposal, target_distribution, request.choices, place)
