"""The walk along a draft's block on the device: each draft from the one before it."""

from __future__ import annotations

import numpy as np

from dspark.kernels.arrays import DeviceArray
from dspark.kernels.shared_memory import step_bytes, step_requests
from dspark.runtime.backends.cuda import CudaBackend
from dspark.runtime.backends.cuda_products import CudaLinear
from dspark.runtime.device_round.batch import Sizes
from dspark.runtime.device_round.state import State
from dspark.runtime.models.block_draft import BlockDraft
from dspark.runtime.models.markov import GatedHead, RecurrentHead

_TOGETHER = 16
"""Requests that one launch of a Markov step takes."""

_THREADS = 128
_NO_RANK = 8
"""The rank of a head of zeros, which a draft without a Markov head is given."""


class Walk:
    """Walks for one draft; `vocab` is how many ids the target has."""

    def __init__(self, backend: CudaBackend, draft: BlockDraft, vocab: int, max_batch: int) -> None:
        self._backend = backend
        self._draft = draft
        self._vocab = vocab
        backend.scratch.release_graphs()

        def zeros(rows: int) -> DeviceArray:
            return backend.device.array(np.zeros((rows, _NO_RANK), np.uint16), "bf16")

        ids = np.asarray(draft.target_ids, np.int32)
        # Not scratch, and neither is what of it is to stay: another draft has other ids.
        self._target_ids = backend.device.array(ids, "i32")
        shape = max(max_batch, _TOGETHER), vocab
        # What the draft does not know stays minus infinity.
        unknown = np.full(shape, -np.inf, np.float32)
        self._logits = backend.device.array(unknown, "f32")
        if draft.markov is None:
            # A head of zeros adds nothing to the logits, and its step takes the likeliest.
            self._table, self._w2 = zeros(vocab), zeros(len(ids))
        else:
            self._table, self._w2 = draft.markov_table, draft.markov_bias.weights

    def run(
        self, state: State, sizes: Sizes, hidden: DeviceArray, base: DeviceArray
    ) -> DeviceArray | None:
        """Puts the drafts of every request behind its newest token in `state.answer.tokens`.

        `hidden` [requests * drafts, H] and `base` [requests * drafts, columns] are the slots'.
        Returns the chances [requests, drafts, vocabulary] that drafts were drawn by, None where
        none were.
        """
        scratch, drawing, slots = self._backend.scratch, state.drawing, sizes.drafts
        chances = status = None
        if drawing is not None:
            shape = sizes.requests, slots
            chances = scratch.empty("chances of drafts", (*shape, self._vocab), "f32")
            status = scratch.empty("status of drafts", shape, "i32")
        for slot in range(slots):
            for begin in range(0, sizes.requests, _TOGETHER):
                end = min(begin + _TOGETHER, sizes.requests)
                self._step(state, sizes, hidden, base, slot, begin, end)
            if drawing is not None and chances is not None and status is not None:
                self._draw(state, sizes, slot, chances, status)
        return chances

    def _step(
        self,
        state: State,
        sizes: Sizes,
        hidden: DeviceArray,
        base: DeviceArray,
        slot: int,
        begin: int,
        end: int,
    ) -> None:
        device, scratch, draft = self._backend.device, self._backend.scratch, self._draft
        count, slots, vocab = end - begin, sizes.drafts, len(draft.target_ids)
        tokens = state.answer.tokens.rows(begin, end)
        part = hidden.rows(begin * slots, end * slots)
        latents = self._latents(part, tokens, slots, slot, (begin, end, sizes.requests))
        table = self._table if latents is None else latents
        rank = table.shape[1]
        tiles = -(-vocab // 16)
        blocks = min(2 * device.driver.multiprocessors, -(-tiles // (_THREADS // 32)))
        most = step_requests(count)
        logits = self._logits
        draws = scratch.once("draws nothing", (_TOGETHER,), "i32", 0).rows(0, count)
        if state.drawing is not None:
            draws, logits = state.drawing.draws.rows(begin, end), logits.rows(begin, end)
        device.kernel(f"markov_step_{most}")(
            blocks,
            _THREADS,
            (
                *(self._w2, table, base.rows(begin * slots, end * slots), self._target_ids),
                *(draws, logits),
                scratch.empty("step values", (blocks, count), "f32"),
                scratch.empty("step places", (blocks, count), "i32"),
                scratch.once("arrived", (1,), "u32", 0),
                *(tokens, count, table.shape[0], rank, vocab, self._vocab, slots, slot),
                *(base.shape[1], blocks, int(latents is not None), draft.config.logit_scale),
            ),
            smem=step_bytes(rank, most),
        )

    def _latents(
        self,
        hidden: DeviceArray,
        tokens: DeviceArray,
        slots: int,
        slot: int,
        place: tuple[int, int, int],
    ) -> DeviceArray | None:
        """What a head with more than a table makes of it; None for a head without.

        `place` says which requests these are, and how many there are in all: a state outlives the
        launches of the others.
        """
        begin, end, requests = place
        head, scratch, count = self._draft.markov, self._backend.scratch, tokens.shape[0]
        if not isinstance(head, GatedHead | RecurrentHead):
            return None
        entries, rank = self._table.shape
        width = hidden.shape[1]
        latents = scratch.empty("latents", (count, rank))
        sizes = count, entries, rank, slots, slot, width, slots, slot
        grid = -(-rank // (_THREADS // 32)), count
        if isinstance(head, GatedHead):
            weights, bias = linear_of(head.gate).with_bias
            gated = weights, bias, self._table, hidden, tokens, latents, *sizes
            self._backend.device.kernel("markov_gated")(grid, _THREADS, gated)
            return latents
        weights, bias = linear_of(head.joint).with_bias
        before, after = (
            scratch.empty(f"state {(slot + later) % 2}", (requests, rank), "f32").rows(begin, end)
            for later in (0, 1)
        )
        arguments = weights, bias, self._table, hidden, tokens, before, after, latents, *sizes
        self._backend.device.kernel("markov_recurrent")(grid, _THREADS, arguments)
        return latents

    def _draw(
        self, state: State, sizes: Sizes, slot: int, chances: DeviceArray, status: DeviceArray
    ) -> None:
        drawing = state.drawing
        # INVARIANT: `run` draws only where there is something to draw by.
        assert drawing is not None
        device, logits = self._backend.device, self._logits
        requests, slots = sizes.requests, sizes.drafts
        tokens, biases = state.answer.tokens, drawing.settings.bias_tokens.shape[1]
        threads = draw_threads(self._vocab)
        device.kernel("distribution")(
            (1, requests),
            threads,
            (
                *(logits.rows(0, requests), tokens, state.wanted, drawing.history),
                *(*drawing.settings, chances, status),
                *(requests, 1, sizes.width, slots, slot, biases, self._vocab),
            ),
        )
        device.kernel("draw_draft")(
            requests,
            threads,
            (
                *(chances, drawing.draws, state.lengths, drawing.seeds, tokens),
                *(requests, slots, slot, self._vocab),
            ),
        )


def draw_threads(vocab: int) -> int:
    """Threads of a block that goes through a row; what comes out does not depend on it."""
    return min(1024, max(64, -(-vocab // 1024) * 32))


def linear_of(weight: object) -> CudaLinear:
    """`weight` as what `CudaBackend.prepare_linear` made of it."""
    # INVARIANT: the models of this backend hold no other.
    assert isinstance(weight, CudaLinear)
    return weight
