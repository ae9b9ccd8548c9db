"""What a round reads and leaves on the device besides the models: who is there, and how far."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dspark.kernels.arrays import DeviceArray
from dspark.runtime.backends.cuda import CudaBackend
from dspark.runtime.choices import SeededChoices
from dspark.runtime.device_round.batch import Batch
from dspark.runtime.device_round.settings import Settings, history_row, penalises, settings
from dspark.runtime.request import Request

Ints = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Answer:
    """What a round comes to; `whole` is all of it, one behind the other, to be read at once.

    `tokens` [requests, width] are the newest tokens and their drafts, of which `rows_of` [requests]
    were verified; `kept` [requests] tokens of `out` [requests, width] are put out.
    """

    whole: DeviceArray
    tokens: DeviceArray
    out: DeviceArray
    rows_of: DeviceArray
    kept: DeviceArray


@dataclass(frozen=True, slots=True)
class Drawing:
    """What only rounds need in which something may be drawn.

    `draws` says whose drafts are taken from logits, `drawn` whose are drawn by chance.
    """

    seeds: DeviceArray
    draws: DeviceArray
    drawn: DeviceArray
    history: DeviceArray
    settings: Settings


@dataclass(frozen=True, slots=True)
class State:
    """The arrays of one round, [requests] each but for `tables` [requests, pages].

    `lengths` are committed, `wanted` the most drafts, -1 where there is no request; `block_rows`
    the draft's rows. `others` [1] are the rows of requests that do not draft.
    """

    lengths: DeviceArray
    wanted: DeviceArray
    block_rows: DeviceArray
    tables: DeviceArray
    others: DeviceArray
    answer: Answer
    drawing: Drawing | None


class Placement:
    """Puts a batch's state on the device, as far as it is not there from the round before."""

    def __init__(
        self,
        backend: CudaBackend,
        *,
        max_batch: int,
        vocab: int,
        block: int,
        table_pages: int,
        spare_page: int,
    ) -> None:
        """`spare_page` stands where a request's page table ends."""
        self._backend = backend
        self._max_batch = max_batch
        self._vocab = vocab
        self._histories: dict[int, tuple[Request, int]] = {}
        self._block = block
        self._table_pages = table_pages
        self._spare_page = spare_page

    def place(self, batch: Batch) -> State:
        """The state of `batch`."""
        scratch, sizes = self._backend.scratch, batch.sizes
        missing = sizes.requests - len(batch.members)
        requests = [member.request for member in batch.members]
        tables = np.full((sizes.requests, self._table_pages), self._spare_page, np.int32)
        for row, request in enumerate(requests):
            tables[row, : len(request.held.pages)] = request.held.pages
        wanted = [member.wanted for member in batch.members]
        return State(
            lengths=scratch.filled(
                "lengths", [*(len(r.tokens) - 1 for r in requests), *[0] * missing]
            ),
            wanted=scratch.filled("wanted", [*wanted, *[-1] * missing]),
            block_rows=scratch.filled(
                "block rows", [*(self._block * (count > 0) for count in wanted), *[0] * missing]
            ),
            tables=scratch.filled("page tables", tables),
            others=scratch.filled("others", [wanted.count(0)]),
            answer=self._answer(batch),
            drawing=self._drawing(batch) if sizes.drawn else None,
        )

    def _answer(self, batch: Batch) -> Answer:
        sizes = batch.sizes
        requests, width = sizes.requests, sizes.width
        rows = requests * width
        whole = self._backend.scratch.empty("answer", (2 * rows + 2 * requests,), "i32")
        tokens = whole.rows(0, rows).reshape(requests, width)
        newest = [member.request.tokens[-1] for member in batch.members]
        newest += [-1] * (requests - len(newest))
        notes = self._backend.scratch.notes
        if notes.get("answer") != (tokens.shape, newest):
            content = np.full(tokens.shape, -1, np.int32)
            content[:, 0] = newest
            self._backend.device.write(tokens, content)
        # Until the round is over, nobody knows.
        notes.pop("answer", None)
        return Answer(
            whole,
            tokens,
            whole.rows(rows, 2 * rows).reshape(requests, width),
            whole.rows(2 * rows, 2 * rows + requests),
            whole.rows(2 * rows + requests, 2 * rows + 2 * requests),
        )

    def _drawing(self, batch: Batch) -> Drawing:
        scratch, count = self._backend.scratch, batch.sizes.requests
        requests = [member.request for member in batch.members]
        params = [request.params for request in requests]
        rest = [0] * (count - len(requests))
        seeds = [_seed(request.choices) for request in requests]
        draws = [int(not each.greedy or each.processes_logits) for each in params]
        return Drawing(
            scratch.filled("seeds", [*seeds, *rest], "u64"),
            scratch.filled("draws", [*draws, *rest]),
            scratch.filled("drawn", [*(int(not each.greedy) for each in params), *rest]),
            self._history(batch),
            settings(scratch, params, count),
        )

    def _history(self, batch: Batch) -> DeviceArray:
        shape = self._max_batch, self._vocab
        history = self._backend.scratch.empty("history", shape, "i32")
        held = self._backend.scratch.notes.pop("history", {})
        self._histories = {}
        for row, (request, _) in enumerate(batch.members):
            if not penalises(request.params):
                continue
            owner, put_out = held.get(row, (None, 0))
            if owner is not request or put_out != request.put_out:
                content = history_row(request.history, self._vocab)[None]
                self._backend.device.write(history.rows(row, row + 1), content)
            self._histories[row] = request, request.put_out
        return history.rows(0, batch.sizes.requests)

    def moved(self, batch: Batch, out: Ints, kept: Ints) -> None:
        """Notes what a round's kernels made of the state: lengths, newest tokens, histories."""
        sizes = batch.sizes
        lengths = [len(member.request.tokens) - 1 for member in batch.members]
        lengths += [0] * (sizes.requests - len(lengths))
        self._backend.scratch.changed("lengths", np.asarray(lengths) + kept)
        newest = [member.request.tokens[-1] for member in batch.members]
        newest += [-1] * (sizes.requests - len(newest))
        ends = [
            int(out[row, count - 1]) if count else before
            for row, (count, before) in enumerate(zip(kept.tolist(), newest, strict=True))
        ]
        notes = self._backend.scratch.notes
        notes["answer"] = (sizes.requests, sizes.width), ends
        if sizes.drawn:
            # Whose history a place holds, and how many tokens that one had put out by then.
            notes["history"] = {
                row: (request, put_out + int(kept[row]))
                for row, (request, put_out) in self._histories.items()
            }


def _seed(choices: object) -> int:
    # INVARIANT: tests alone hand a request other choices, and none to an engine on a device.
    assert isinstance(choices, SeededChoices)
    return choices.seed
