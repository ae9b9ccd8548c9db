"""The launches of a round: what a graph records, and what runs without one.

Nothing here waits for the device or reads from it, and nothing is handed over by value that differs
from one round of the same size to the next.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count

import numpy as np

from dspark.kernels.arrays import DeviceArray
from dspark.runtime.backends.base import KvStore
from dspark.runtime.backends.cuda import CudaBackend, Features
from dspark.runtime.confidence import ConfidenceSchedule
from dspark.runtime.device_round.batch import Sizes
from dspark.runtime.device_round.rows import Rows, over
from dspark.runtime.device_round.state import State
from dspark.runtime.device_round.walk import Walk, draw_threads, linear_of
from dspark.runtime.models.block_draft import BlockDraft
from dspark.runtime.models.decoder import RowPlan
from dspark.runtime.models.qwen3 import Qwen3Target


@dataclass(frozen=True, slots=True)
class Drafting:
    """A draft with its store, and what walks along its blocks."""

    model: BlockDraft
    store: KvStore
    walk: Walk
    schedule: ConfidenceSchedule | None


_numbers = count()
"""Of programs, to tell apart what each keeps on a device that several may use."""


class Program:
    """Rounds of a target, with a draft or without; page tables have `table_pages` pages."""

    def __init__(
        self,
        backend: CudaBackend,
        target: Qwen3Target,
        store: KvStore,
        drafting: Drafting | None,
        *,
        pages: int,
        table_pages: int,
        max_batch: int,
    ) -> None:
        self._own = next(_numbers)
        self._backend = backend
        self._target = target
        self._store = store
        self._drafting = drafting
        self._rows = Rows(
            backend,
            page_size=store.page_size,
            table_pages=table_pages,
            scratch_slot=pages * store.page_size,
        )
        self._max_rows = max_batch * (1 + (drafting.model.config.block_size if drafting else 0))

    def run(self, state: State, sizes: Sizes) -> None:
        """Launches a round of these sizes; it leaves what it came to in `state.answer`."""
        with self._backend.products.in_round():
            self._run(state, sizes)

    def _run(self, state: State, sizes: Sizes) -> None:
        chances = self._draft(self._drafting, state, sizes) if self._drafting else None
        if not (self._drafting and sizes.drafts):
            self._count(state, sizes)
        answer = state.answer
        tokens = answer.tokens.reshape(sizes.requests * sizes.width)
        target = self._target
        x = self._backend.embedding(tokens, target.embedding)
        rows = self._rows.plan(
            state, sizes.width, answer.rows_of, target.config, target.rope_table, (True, True)
        )
        passed = target.run(x, self._store, rows)
        self._accept(state, sizes, passed.hidden, chances)
        if self._drafting and passed.features is not None:
            self._extend(self._drafting, state, sizes, passed.features)
        self._backend.device.kernel("commit_round")(
            *over(sizes.requests),
            (
                *(answer.out, answer.kept, state.lengths, answer.tokens),
                *(sizes.requests, sizes.width),
            ),
        )

    # ------------------------------------------------------------------------------- drafts

    def _draft(self, drafting: Drafting, state: State, sizes: Sizes) -> DeviceArray | None:
        """Drafts, and how many of them are to be verified; the chances they were drawn by."""
        slots = sizes.drafts
        if not slots:
            return None
        hidden = self._block(drafting, state, sizes)
        base = self._backend.logits(hidden, linear_of(drafting.model.head))
        chances = drafting.walk.run(state, sizes, hidden, base)
        self._count(state, sizes)
        if drafting.schedule is not None and drafting.model.config.enable_confidence_head:
            self._cut(drafting, drafting.schedule, state, sizes, hidden)
        return chances

    def _block(self, drafting: Drafting, state: State, sizes: Sizes) -> DeviceArray:
        """Hidden states [requests * drafts, H] of the slots that draft."""
        model, scratch, device = drafting.model, self._backend.scratch, self._backend.device
        config, requests = model.config, sizes.requests
        width = config.block_size
        ids = scratch.empty("block ids", (requests * width,), "i32")
        arguments = state.answer.tokens, ids, requests, sizes.drafts, width, config.mask_token_id
        device.kernel("block_ids")(*over(requests * width), arguments)
        rows = self._rows.plan(
            *(state, width, state.block_rows, config, model.rope_table),
            (False, not config.sliding_window_non_causal),
        )
        hidden: DeviceArray = model.run(ids, drafting.store, rows)
        first = width - config.drafts_per_round
        if sizes.drafts == width:
            return hidden
        slots = np.arange(self._max_rows)[:, None] * width + first + np.arange(sizes.drafts)
        numbers = scratch.filled(f"slots {sizes.drafts} of {self._own}", slots.ravel())
        return self._backend.gather(
            hidden, numbers.rows(0, requests * sizes.drafts), "slots hidden"
        )

    def _count(self, state: State, sizes: Sizes) -> None:
        answer = state.answer
        arguments = answer.tokens, state.wanted, answer.rows_of, sizes.requests, sizes.drafts
        self._backend.device.kernel("count_drafts")(*over(sizes.requests), arguments)

    def _cut(
        self,
        drafting: Drafting,
        schedule: ConfidenceSchedule,
        state: State,
        sizes: Sizes,
        hidden: DeviceArray,
    ) -> None:
        """Lowers `rows_of` to the drafts that pay."""
        model, scratch, device = drafting.model, self._backend.scratch, self._backend.device
        weights, bias = linear_of(model.confidence_head).with_bias
        requests, slots = sizes.requests, sizes.drafts
        width = hidden.shape[1]
        table, rank = hidden, 0
        if model.config.confidence_head_with_markov:
            table, rank = model.markov_table, model.config.markov_rank
        logits = scratch.empty("confidence", (requests, slots), "f32")
        arguments = (
            *(weights.reshape(width + rank), bias, table, hidden, state.answer.tokens),
            *(logits, requests, table.shape[0], rank, slots, 0, width, slots),
        )
        device.kernel("confidence")(-(-requests * slots // 4), 128, arguments)
        temperatures = [*schedule.temperatures, *[1.0] * slots][:slots]
        rates = [schedule.passes_per_second(rows) for rows in range(self._max_rows + 1)]
        device.kernel("cut_drafts")(
            1,
            256,
            (
                logits,
                scratch.filled(f"temperatures {slots} of {self._own}", temperatures, "f64"),
                scratch.filled(f"rates of {self._own}", rates, "f64"),
                *(state.others, state.wanted, state.answer.rows_of),
                *(requests, slots, self._max_rows),
            ),
            smem=12 * requests * slots,
        )

    def _extend(self, drafting: Drafting, state: State, sizes: Sizes, features: Features) -> None:
        """Gives the draft its context for what was accepted; the other rows go nowhere."""
        rotary, slots = self._rows.place(
            state, sizes.width, state.answer.kept, drafting.model.rope_table
        )
        drafting.model.keep(features, drafting.store, RowPlan(slots, rotary, {}))

    # ------------------------------------------------------------------------------- target

    def _accept(
        self, state: State, sizes: Sizes, hidden: DeviceArray, chances: DeviceArray | None
    ) -> None:
        backend, answer, head = self._backend, state.answer, linear_of(self._target.head)
        requests, width = sizes.requests, sizes.width
        if state.drawing is None:
            best = backend.products.best(hidden, head)
            arguments = answer.tokens, best, answer.rows_of, answer.out, answer.kept
            backend.device.kernel("accept_greedy")(
                -(-requests // 8), 256, (*arguments, requests, width)
            )
            return
        drawing, scratch, vocab = state.drawing, backend.scratch, head.outputs
        logits = backend.logits(hidden, head)
        p = scratch.empty("chances of target", (requests, width, vocab), "f32")
        status = scratch.empty("status of target", (requests, width), "i32")
        q = scratch.empty("no chances", (1,), "f32").rows(0, 0) if chances is None else chances
        threads, biases = draw_threads(vocab), drawing.settings.bias_tokens.shape[1]
        backend.device.kernel("distribution")(
            (width, requests),
            threads,
            (
                *(logits, answer.tokens, answer.rows_of, drawing.history),
                *(*drawing.settings, p, status),
                *(requests, width, width, width, 0, biases, vocab),
            ),
        )
        backend.device.kernel("accept_sampled")(
            requests,
            threads,
            (
                *(answer.tokens, answer.rows_of, state.lengths, drawing.seeds, drawing.drawn),
                *(p, q, answer.out, answer.kept, requests, width, vocab),
            ),
        )
        backend.device.kernel("note_tokens")(
            *over(requests * width),
            (answer.out, answer.kept, drawing.history, requests, width, vocab),
        )
