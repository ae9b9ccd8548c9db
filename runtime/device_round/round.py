"""Passes on a device: what is due of prompts first, and then one round for all who decide.

The round is that of `runtime/round.py`: propose, verify, commit. There the host walks along the
block and decides; here kernels do, so that the host hears of a round once, when it is over.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dspark.runtime.backends.cuda import CudaBackend
from dspark.runtime.cache import PagePool
from dspark.runtime.calibration import ConfidenceRound
from dspark.runtime.confidence import ConfidenceSchedule
from dspark.runtime.device_round.batch import Batch, Member, batch_of
from dspark.runtime.device_round.graphs import Graphs
from dspark.runtime.device_round.limits import sizes_without_kernel
from dspark.runtime.device_round.program import Drafting, Program
from dspark.runtime.device_round.settings import FORBIDDEN, MOST_BIASES
from dspark.runtime.device_round.state import Ints, Placement, State
from dspark.runtime.device_round.walk import Walk
from dspark.runtime.errors import NonFiniteLogits, WeightError
from dspark.runtime.models.rows import Segment
from dspark.runtime.outcome import drafts_wanted, put_out
from dspark.runtime.round import Models
from dspark.runtime.sampling import TokenLogprob, logprob
from dspark.runtime.scheduler import Work
from dspark.runtime.statistics import EngineStatistics, Skip
from dspark.runtime.timing import PassClock


class DeviceRound:
    """Runs passes over the same models and pages; `graphs` counts the rounds of either kind.

    `max_length` is the most positions that a request may have, its last block left aside.
    """

    most_biases: int | None = MOST_BIASES

    def __init__(
        self,
        models: Models,
        pool: PagePool,
        schedule: ConfidenceSchedule | None,
        statistics: EngineStatistics,
        *,
        max_batch: int,
        max_length: int,
    ) -> None:
        """Raises `WeightError` where there is no kernel for a size."""
        backend = models.target.backend
        # INVARIANT: the engine asks for this round only where the backend runs it.
        assert isinstance(backend, CudaBackend)
        draft_config = None if models.draft is None else models.draft.config
        for found in sizes_without_kernel(
            models.target.config, draft_config, max_batch, backend.device.driver.most_shared
        ):
            raise WeightError(found.message)
        self._backend = backend
        self._models = models
        self._pool = pool
        self._statistics = statistics
        self._schedule = schedule
        self._max_batch = max_batch
        self.recorded: list[ConfidenceRound] | None = None
        self.graphs = Graphs(backend.device)
        backend.scratch.holders.add(self.graphs)
        vocab, draft = models.target.config.vocab_size, models.draft
        drafting = None
        if draft is not None and models.draft_store is not None:
            walk = Walk(backend, draft, vocab, max_batch)
            drafting = Drafting(draft, models.draft_store, walk, schedule)
        block = 0 if draft is None else draft.config.block_size
        table_pages = pool.pages_for(max_length + block)
        self._placement = Placement(
            backend,
            max_batch=max_batch,
            vocab=vocab,
            block=block,
            table_pages=table_pages,
            spare_page=pool.count,
        )
        self._program = Program(
            backend,
            models.target,
            models.target_store,
            drafting,
            pages=pool.count,
            table_pages=table_pages,
            max_batch=max_batch,
        )

    def run(self, parts: Sequence[Work]) -> None:
        """One pass: afterwards every request has its new tokens, and may have ended.

        Raises:
            NonFiniteLogits: the target's logits are not numbers.
        """
        clock = PassClock(self._statistics, [part.request.statistics for part in parts])
        prompts = {number: _of_prompt(part) for number, part in enumerate(parts)}
        self._prefill([(parts[number], count) for number, count in prompts.items() if count])
        clock.lap("verify_s", prompts)
        deciding = [number for number, part in enumerate(parts) if part.decides]
        if deciding:
            self._decide([parts[number] for number in deciding], deciding, clock)
        self._statistics.passes += 1

    def _prefill(self, parts: Sequence[tuple[Work, int]]) -> None:
        """Reads so many tokens of each; the newest of a prompt is left to the round."""
        if not parts:
            return
        models = self._models
        segments = []
        for part, count in parts:
            request, start = part.request, part.request.held.length
            tokens = request.tokens[start : start + count]
            segments.append(Segment(tokens, start, request.held.pages))
        passed = models.target.forward(segments, models.target_store)
        if models.draft is not None and models.draft_store is not None:
            models.draft.extend(passed.features, segments, models.draft_store)
        for (part, _), segment in zip(parts, segments, strict=True):
            self._pool.commit(part.request.held, part.request.tokens, segment.end)

    def _decide(self, parts: Sequence[Work], numbers: Sequence[int], clock: PassClock) -> None:
        """A round of those whose next token is due; `numbers` are theirs in the pass."""
        draft, page_size = self._models.draft, self._pool.page_size
        members = [Member(part.request, drafts_wanted(part, draft, page_size)) for part in parts]
        batch = batch_of(members, self._max_batch)
        state = self._placement.place(batch)
        clock.lap("host_s", dict.fromkeys(numbers, 1))
        self.graphs.run(batch.sizes, lambda: self._program.run(state, batch.sizes))
        counts, graphs = self._statistics, self.graphs
        counts.graph_rounds, counts.eager_rounds = graphs.replayed, graphs.eager
        answer = self._read(state, batch)
        rows = answer.rows_of.tolist()
        clock.lap("verify_s", dict(zip(numbers, rows, strict=False)))
        self._placement.moved(batch, answer.out, answer.kept)
        for row, member in enumerate(members):
            self._put_out(row, member, answer, state)
            request = member.request
            self._pool.commit(request.held, request.tokens, len(request.tokens) - 1)
        clock.lap("host_s", dict.fromkeys(numbers, 1))

    def _read(self, state: State, batch: Batch) -> _Answer:
        requests, width = batch.sizes.requests, batch.sizes.width
        tokens, out, rest = np.split(
            self._backend.device.read(state.answer.whole),
            [requests * width, 2 * requests * width],
        )
        shape = requests, width
        return _Answer(tokens.reshape(shape), out.reshape(shape), rest[:requests], rest[requests:])

    def _put_out(self, row: int, member: Member, answer: _Answer, state: State) -> None:
        request = member.request
        tokens = answer.out[row, : answer.kept[row]].tolist()
        if -1 in tokens:
            raise NonFiniteLogits("the target's logits are not finite numbers")
        drafts = int(answer.rows_of[row]) - 1
        self._note_broken(row, member, answer, state)
        self._record(row, drafts, len(tokens), state)
        put_out(
            request, drafts, tokens, self._logprobs(row, member, tokens, answer), self._statistics
        )

    def _note_broken(self, row: int, member: Member, answer: _Answer, state: State) -> None:
        """Counts a walk that ended before its drafts were all there."""
        walked = answer.tokens[row, 1 : member.wanted + 1]
        if (walked < 0).any():
            place = int((walked < 0).argmax())
            forbidden = state.drawing is not None and self._draft_status(state, row, place)
            why: Skip = "vocabulary" if forbidden else "nonfinite"
            member.request.statistics.acceptance.draft_skipped[why] += 1

    def _draft_status(self, state: State, row: int, place: int) -> bool:
        """Whether it is the request's own parameters that left this draft no token."""
        shape = state.lengths.shape[0], state.answer.tokens.shape[1] - 1
        status = self._backend.scratch.empty("status of drafts", shape, "i32")
        # 2 by sampling.cu; what is taken by argmax alone has no status, and no bias either.
        return int(self._backend.device.read(status)[row, place]) == FORBIDDEN

    def _record(self, row: int, drafts: int, tokens: int, state: State) -> None:
        if self.recorded is None or self._schedule is None or not drafts:
            return
        draft = self._models.draft
        # INVARIANT: there are drafts.
        assert draft is not None
        if draft.config.enable_confidence_head:
            width = state.answer.tokens.shape[1] - 1
            logits = self._backend.scratch.empty(
                "confidence", (state.lengths.shape[0], width), "f32"
            )
            found = self._backend.host(logits)[row, :drafts]
            survival = tuple(
                self._schedule.probability(float(logit), slot) for slot, logit in enumerate(found)
            )
            self.recorded.append(ConfidenceRound(survival, tokens - 1))

    def _logprobs(
        self, row: int, member: Member, tokens: Sequence[int], answer: _Answer
    ) -> list[TokenLogprob]:
        wanted = member.request.params.logprobs
        if wanted is None:
            return []
        vocab, width = self._models.target.config.vocab_size, answer.out.shape[1]
        shape = len(answer.kept) * width, vocab
        logits = self._backend.scratch.empty("logits", shape, "f32")
        first = row * width
        found = self._backend.host(logits.rows(first, first + len(tokens)))
        return [logprob(found[place], token, wanted) for place, token in enumerate(tokens)]


def _of_prompt(part: Work) -> int:
    """How many of the part's tokens are read before the round."""
    return part.tokens - 1 if part.decides else part.tokens


class _Answer(NamedTuple):
    """What a round came to, in the host's memory; `state.Answer` has the shapes."""

    tokens: Ints
    out: Ints
    rows_of: Ints
    kept: Ints
