"""The speculative round, written once for any backend, lane and kind of sampling.

Propose: the draft guesses. Verify: the target runs the newest token and the guesses in one pass,
beside whatever prompt tokens are due. Commit: what the target agrees with is kept, plus one token
of its own; both caches are cut back to that, request by request.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dspark.runtime.acceptance import NOTHING, Proposal, accept_greedy, accept_sampled
from dspark.runtime.backends.base import Array, HostFloats, HostInts, KvStore
from dspark.runtime.cache import PagePool
from dspark.runtime.calibration import ConfidenceRound
from dspark.runtime.confidence import ConfidenceSchedule
from dspark.runtime.errors import NonFiniteLogits
from dspark.runtime.models.block_draft import BlockDraft
from dspark.runtime.models.qwen3 import Qwen3Target
from dspark.runtime.models.rows import Segment
from dspark.runtime.outcome import drafts_wanted, put_out
from dspark.runtime.propose import propose
from dspark.runtime.request import Request
from dspark.runtime.sampling import distribution, logprob
from dspark.runtime.scheduler import Work
from dspark.runtime.statistics import EngineStatistics
from dspark.runtime.timing import PassClock


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

    most_biases: int | None = None

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
        self.recorded: list[ConfidenceRound] | None = None

    def run(self, parts: Sequence[Work]) -> None:
        """One pass: afterwards every request has its new tokens, and may have ended.

        Raises:
            NonFiniteLogits: the target's logits are not numbers.
        """
        with self._models.target.backend.session():
            self._pass(parts)

    def _pass(self, parts: Sequence[Work]) -> None:
        everyone = dict.fromkeys(range(len(parts)), 1)
        clock = PassClock(self._statistics, [part.request.statistics for part in parts])
        draft, page_size = self._models.draft, self._pool.page_size
        wanted = [drafts_wanted(part, draft, page_size) for part in parts]
        proposals = self._propose(parts, wanted)
        clock.lap("draft_s", {number: int(count > 0) for number, count in enumerate(wanted)})
        segments = [
            _segment(part, proposal) for part, proposal in zip(parts, proposals, strict=True)
        ]
        passed = self._models.target.forward(segments, self._models.target_store)
        verified = self._read(parts, proposals, passed.hidden)
        clock.lap("verify_s", {number: len(one.tokens) for number, one in enumerate(segments)})
        for number, (part, result) in enumerate(zip(parts, verified, strict=True)):
            if result is not None:
                self._decide(part.request, proposals[number], result)
                clock.lap("host_s", {number: 1})
        kept = self._commit(parts, segments)
        clock.lap("host_s", everyone)
        if kept and passed.features is not None:
            self._extend(kept, segments, passed.features)
            clock.lap("draft_s", kept)
        self._statistics.passes += 1

    def _propose(self, parts: Sequence[Work], wanted: Sequence[int]) -> list[Proposal]:
        draft, store = self._models.draft, self._models.draft_store
        proposals = [NOTHING] * len(parts)
        drafting = [number for number, count in enumerate(wanted) if count]
        if draft is None or store is None or not drafting:
            return proposals
        made = propose(
            draft,
            store,
            [parts[number].request for number in drafting],
            [wanted[number] for number in drafting],
            self._schedule,
        )
        lengths = self._lengths(parts, made)
        for number, proposal, length in zip(drafting, made, lengths, strict=True):
            proposals[number] = proposal.first(length)
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
        if self.recorded is not None and proposal.survival:
            self.recorded.append(ConfidenceRound(tuple(proposal.survival), len(tokens) - 1))
        notes = []
        if logits is not None and params.logprobs is not None:
            notes = [
                logprob(logits[row], token, params.logprobs) for row, token in enumerate(tokens)
            ]
        put_out(request, len(proposal.tokens), tokens, notes, self._statistics)

    def _commit(self, parts: Sequence[Work], segments: Sequence[Segment]) -> dict[int, int]:
        """Cuts both caches to what was committed.

        Returns how many rows that left of each request that drafts, by its number in the pass.
        """
        kept: dict[int, int] = {}
        for number, (part, segment) in enumerate(zip(parts, segments, strict=True)):
            request = part.request
            # The newest token has been through neither model yet.
            length = len(request.tokens) - 1 if part.decides else segment.end
            if request.drafts:
                kept[number] = length - segment.start
            self._pool.commit(request.held, request.tokens, length)
        return kept

    def _extend(
        self, kept: Mapping[int, int], segments: Sequence[Segment], features: Array
    ) -> None:
        """Gives the draft its new context: the features of the rows that were committed."""
        draft, store = self._models.draft, self._models.draft_store
        # INVARIANT: only with a draft does a target give features, or a request ask for drafts.
        assert draft is not None
        assert store is not None
        rows: list[int] = []
        first = 0
        for number, segment in enumerate(segments):
            rows += range(first, first + kept.get(number, 0))
            first += len(segment.tokens)
        context = [
            Segment(segments[number].tokens[:count], segments[number].start, segments[number].pages)
            for number, count in kept.items()
        ]
        draft.extend(draft.backend.take(features, rows), context, store)


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
