"""accept_sampled of round.cu against the runtime's own, number for number, and as a law."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from dspark.kernels.host.simulator import IN_ORDER
from dspark.runtime.acceptance import Proposal, accept_sampled
from dspark.runtime.choices import Purpose, SeededChoices
from tests.support.kernel_bench import Bench
from tests.support.kernel_draws import chi_square_is_likely, seed_for

Chances = npt.NDArray[np.float32]
NOTHING = -1
WIDTH, VOCAB, BLOCK = 4, 203, 64


def accepted(
    bench: Bench,
    tokens: npt.ArrayLike,
    rows_of: list[int],
    seeds: list[int],
    p: Chances,
    q: Chances,
    drawn: list[int] | None = None,
    lengths: list[int] | None = None,
    block: int = BLOCK,
) -> tuple[list[list[int]], list[int]]:
    requests, width, vocab = p.shape
    number = len(bench.driver.reports)
    out = bench.poison((requests, width), f"out {number}", "i32")
    kept = bench.poison((requests,), f"kept {number}", "i32")
    bench.launch(
        *("accept_sampled", requests, block, bench.i32(tokens, f"tokens {number}")),
        bench.i32(rows_of, f"rows_of {number}"),
        bench.i32(lengths or [0] * requests, f"lengths {number}"),
        bench.device.array(np.array(seeds, np.uint64), "u64", f"seeds {number}"),
        bench.i32(drawn or [1] * requests, f"drawn {number}"),
        bench.f32(p, f"p {number}"),
        bench.f32(q, f"q {number}"),
        *(out, kept, requests, width, vocab),
    )
    return bench.ints(out), bench.ints(kept)


def expected(
    tokens: list[int], rows: int, seed: int, p: Chances, q: Chances, drawn: int, length: int
) -> list[int]:
    drafts = tokens[1:rows]
    chances = [q[index] if drawn else None for index in range(len(drafts))]
    return accept_sampled(
        Proposal(drafts, chances, None), lambda index: p[index], SeededChoices(seed), length + 1
    )


def padded(row: list[int], width: int = WIDTH) -> list[int]:
    return row + [NOTHING] * (width - len(row))


def laws(requests: int, seed: int) -> tuple[Chances, Chances, npt.NDArray[np.int64]]:
    """p, q that are something like it, and drafts drawn from q; both have zeros."""
    random = np.random.default_rng(seed)
    p = random.exponential(size=(requests, WIDTH, VOCAB)) ** 3
    q = p[:, : WIDTH - 1] * random.exponential(size=(requests, WIDTH - 1, VOCAB))
    p[:, :, ::5] = 0
    q[:, :, ::7] = 0
    p, q = (each / each.sum(axis=-1, keepdims=True) for each in (p, q))
    tokens = np.full((requests, WIDTH), 9)
    for request in range(requests):
        for index in range(WIDTH - 1):
            tokens[request, index + 1] = random.choice(VOCAB, p=q[request, index])
    return p.astype(np.float32), q.astype(np.float32), tokens


def test_accept_sampled_is_the_runtimes(bench: Bench) -> None:
    requests = 40
    p, q, tokens = laws(requests, 20)
    random = np.random.default_rng(21)
    seeds = [int(seed) for seed in random.integers(0, 2**64, requests, np.uint64)]
    lengths = random.integers(0, 3000, requests).tolist()
    rows_of = [[4, 4, 3, 4, 2, 1][request % 6] for request in range(requests)]
    # Every fifth request has likeliest drafts, of which most hold.
    drawn = [int(request % 5 > 0) for request in range(requests)]
    for request in range(0, requests, 5):
        tokens[request, 1:] = p[request, : WIDTH - 1].argmax(axis=-1)
        p[request] *= 0.3
        for index in range(WIDTH - 1):
            p[request, index, tokens[request, index + 1]] += 0.7

    out, kept = accepted(bench, tokens, rows_of, seeds, p, q, drawn, lengths)

    wanted = [
        expected(
            *(tokens[request].tolist(), rows_of[request], seeds[request]),
            *(p[request], q[request], drawn[request], lengths[request]),
        )
        for request in range(requests)
    ]
    # All kinds of endings are among them: a draft that fails anywhere, and none that does.
    kinds = {(drawn[i], len(row) - 1, rows_of[i]) for i, row in enumerate(wanted)}
    assert {(1, 0, 4), (1, 1, 4), (1, 2, 4), (1, 3, 4), (1, 1, 2), (1, 0, 1)} <= kinds
    assert {(0, 0, 4), (0, 3, 4)} <= kinds
    assert [len(row) for row in wanted] == kept
    assert [padded(row) for row in wanted] == out


def test_a_draft_is_kept_below_its_quotient(bench: Bench) -> None:
    """p/q is 1/2, and the number next below, that, and next above it; then p above q."""
    p = np.zeros((4, 2, 80), np.float32)
    q = np.zeros((4, 1, 80), np.float32)
    p[:, 0, [5, 70]] = 0.25, 0.75
    p[3, 0, [5, 70]] = 0.75, 0.25
    q[:, 0, [5, 70]] = 0.5, 0.5
    p[:, 1, 33] = 1
    half = 2**52
    seeds = [
        seed_for(number, 8, Purpose.ACCEPT) for number in (half - 1, half, half + 1, 2**53 - 1)
    ]

    out, kept = accepted(bench, [[1, 5]] * 4, [2] * 4, seeds, p, q, lengths=[7] * 4)

    assert [[5, 33], [70, NOTHING], [70, NOTHING], [5, 33]] == out
    assert [2, 1, 1, 2] == kept


def test_a_request_that_only_fills_up_gets_nothing(bench: Bench) -> None:
    p, q, tokens = laws(3, 22)

    out, kept = accepted(bench, tokens, [0, 1, 0], [1, 2, 3], p, q)

    assert [0, 1, 0] == kept
    assert [padded([]), padded([])] == out[::2]
    assert padded(expected([9], 1, 2, p[1], q[1], 1, 0)) == out[1]


def test_where_nothing_is_left_p_is_meant(bench: Bench) -> None:
    # p is q but for a factor: what p has beyond q is nothing, and yet a draft can fail.
    _, q, tokens = laws(3, 23)
    p = np.concatenate([q, q[:, :1]], axis=1) * np.float32(0.5)
    seeds = [seed_for(2**53 - number, 1, Purpose.ACCEPT) for number in (1, 2, 3)]

    out, kept = accepted(bench, tokens, [4] * 3, seeds, p, q)

    for request in range(3):
        wanted = expected(tokens[request].tolist(), 4, seeds[request], p[request], q[request], 1, 0)
        assert 1 == len(wanted) == kept[request]
        assert padded(wanted) == out[request]


def test_what_was_no_number_agrees_with_nothing(bench: Bench) -> None:
    """A row without any chance at the first draft, behind it, and at the bonus; no draft at all."""
    p, q, tokens = laws(4, 24)
    p[:, : WIDTH - 1] = q
    for request in range(3):
        p[request, [0, 1, 3][request]] = 0.0
    tokens[3, 2] = NOTHING

    out, kept = accepted(bench, tokens, [4] * 4, [1, 2, 3, 4], p, q)

    second, third, fourth = tokens[1:].tolist()
    assert padded([NOTHING]) == out[0]
    assert padded([second[1], NOTHING]) == out[1]
    assert [*third[1:], NOTHING] == out[2]
    assert [1, 2, 4, 2] == kept
    assert fourth[1] == out[3][0]
    assert p[3, 1, out[3][1]] > 0


def test_greedy_requests_in_such_company(plain_bench: Bench) -> None:
    """All mass on one token in p: the draft that is it holds, and any other gives way to it."""
    p = np.zeros((2, WIDTH, VOCAB), np.float32)
    for index, token in enumerate([11, 22, 33, 44]):
        p[:, index, token] = 1
    q = np.full((2, WIDTH - 1, VOCAB), np.nan, np.float32)

    out, kept = accepted(
        plain_bench, [[1, 11, 22, 33], [1, 11, 23, 33]], [4, 4], [5, 6], p, q, drawn=[0, 0]
    )

    assert [[11, 22, 33, 44], [11, 22, NOTHING, NOTHING]] == out
    assert [4, 2] == kept


def test_a_block_of_any_size_decides_alike(plain_bench: Bench) -> None:
    p, q, tokens = laws(12, 25)
    seeds = list(range(12))

    one = accepted(plain_bench, tokens, [4] * 12, seeds, p, q, block=32)
    other = accepted(plain_bench, tokens, [4] * 12, seeds, p, q, block=256)

    assert one == other


@pytest.mark.slow
@pytest.mark.parametrize("likeness", [0.3, 2.0])
def test_what_comes_out_follows_the_target(likeness: float, compiled: Path) -> None:
    """Drafts drawn by one kernel and judged by the other: the first two tokens are p's."""
    requests, rounds, vocab, width = 200, 25, 12, 3
    bench = Bench(compiled, IN_ORDER, "fast")
    random = np.random.default_rng(26)
    # p of the second token depends on the first, as a model's does.
    p_first = random.dirichlet(np.ones(vocab)).astype(np.float32)
    p_second = random.dirichlet(np.ones(vocab), vocab).astype(np.float32)
    q_first, q_second = (
        (each**likeness / (each**likeness).sum(axis=-1, keepdims=True)).astype(np.float32)
        for each in (p_first, p_second)
    )
    joint = np.zeros((vocab, vocab))
    alone = np.zeros(vocab)
    accepts = 0
    for number in range(rounds):
        seeds = [number * requests + seed for seed in range(requests)]
        q = np.zeros((requests, width - 1, vocab), np.float32)
        p = np.zeros((requests, width, vocab), np.float32)
        q[:, 0], p[:, 0] = q_first, p_first
        tokens = _drafts(bench, q, seeds, 0, None)
        q[:, 1], p[:, 1] = q_second[tokens[:, 1]], p_second[tokens[:, 1]]
        tokens = _drafts(bench, q, seeds, 1, tokens)
        p[:, 2] = 1 / vocab
        out, kept = accepted(bench, tokens, [width] * requests, seeds, p, q)
        np.add.at(alone, [row[0] for row in out], 1)
        for row, count in zip(out, kept, strict=True):
            accepts += count > 1
            # A second token that was not put out yet is drawn from p, as the next round would.
            if count > 1:
                joint[row[0], row[1]] += 1

    assert 0.1 < accepts / (rounds * requests) < 0.99
    chi_square_is_likely(alone, p_first)
    for token in range(vocab):
        if joint[token].sum() > 200:
            chi_square_is_likely(joint[token], p_second[token])


def _drafts(bench: Bench, q: Chances, seeds: list[int], slot: int, before: Any) -> Any:
    requests, places, vocab = q.shape
    number = len(bench.driver.reports)
    start = np.full((requests, places + 1), 0) if before is None else before
    tokens = bench.i32(start, f"drafts {number}")
    bench.launch(
        *("draw_draft", requests, BLOCK, bench.f32(q, f"of drafts {number}")),
        bench.i32([1] * requests, f"draws {number}"),
        bench.i32([0] * requests, f"before {number}"),
        bench.device.array(np.array(seeds, np.uint64), "u64", f"seeded {number}"),
        *(tokens, requests, places, slot, vocab),
    )
    return np.array(bench.ints(tokens))
