"""The output's distribution, by walking every path: it must be the target's own."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dspark.runtime.acceptance import Proposal, accept_greedy, accept_sampled
from dspark.runtime.choices import Purpose
from dspark.runtime.params import SamplingParams
from dspark.runtime.sampling import History, distribution
from tests.runtime.enumeration import Path, every_path, law
from tests.runtime.naive_sampling import PARAMS, naive

VOCAB, PROMPT = 4, (1, 3)


def logits_after(model: str, tokens: Sequence[int]) -> np.ndarray:
    """Logits that are some function of what came before, as a model's are."""
    seed = zlib.crc32(f"{model}{list(tokens)}".encode())
    return np.random.default_rng(seed).normal(0, 1.5, VOCAB).astype(np.float32)


def history_after(tokens: Sequence[int]) -> History:
    return History(frozenset(PROMPT)).followed_by(tokens)


def draft(path: Path, params: SamplingParams, count: int, *, sampled: bool) -> Proposal:
    tokens: list[int] = []
    chances: list[np.ndarray | None] = []
    for _ in range(count):
        q = distribution(logits_after("draft", tokens), params, history_after(tokens))
        if sampled and not params.greedy:
            tokens.append(path.pick(q, 0, Purpose.DRAFT))
            chances.append(q)
        else:
            tokens.append(int(q.argmax()))
            chances.append(None)
    return Proposal(tokens, chances, None)


def expected_law(params: SamplingParams, length: int) -> dict[tuple[int, ...], float]:
    out = {}
    for tokens in itertools.product(range(VOCAB), repeat=length):
        chance = 1.0
        for index, token in enumerate(tokens):
            before = tokens[:index]
            chance *= naive(list(logits_after("target", before)), params, PROMPT, before)[token]
        out[tokens] = chance
    return out


def emitted(
    path: Path, params: SamplingParams, k: int, length: int, *, sampled: bool
) -> tuple[int, ...]:
    """The first `length` tokens: a round, then as much of plain decoding as is missing."""

    def target(tokens: Sequence[int]) -> np.ndarray:
        return distribution(logits_after("target", tokens), params, history_after(tokens))

    proposal = draft(path, params, k, sampled=sampled)
    tokens = accept_sampled(proposal, lambda i: target(proposal.tokens[:i]), path, 0)
    while len(tokens) < length:
        tokens.append(path.pick(target(tokens), len(tokens), Purpose.TARGET))
    return tuple(tokens[:length])


@pytest.mark.parametrize("sampled", [True, False], ids=["sampled-draft", "greedy-draft"])
@pytest.mark.parametrize("k", [1, 2])
@pytest.mark.parametrize("name", PARAMS)
def test_k2_k4_k5_the_law_of_the_output_is_the_targets(name: str, k: int, sampled: bool) -> None:
    params = PARAMS[name]
    got = law(lambda path: emitted(path, params, k, k + 1, sampled=sampled))
    expected = expected_law(params, k + 1)
    assert 1 == pytest.approx(sum(expected.values()))
    for tokens, chance in expected.items():
        assert abs(chance - got.get(tokens, 0.0)) < 1e-6, (tokens, chance, got.get(tokens))


def test_the_enumeration_would_see_a_wrong_ratio() -> None:
    # The fault of K2: the draft is drawn from one distribution and judged by another.
    params = SamplingParams(max_tokens=9, temperature=0.5)

    def faulty(path: Path) -> tuple[int, ...]:
        q = distribution(logits_after("draft", []), params, history_after([]))
        raw = distribution(
            logits_after("draft", []), SamplingParams(max_tokens=9), history_after([])
        )
        token = path.pick(q, 0, Purpose.DRAFT)
        p = distribution(logits_after("target", []), params, history_after([]))
        return tuple(accept_sampled(Proposal([token], [raw], None), lambda _: p, path, 0)[:1])

    got, expected = law(faulty), expected_law(params, 1)
    assert max(abs(expected[tokens] - got.get(tokens, 0)) for tokens in expected) > 0.01


def test_i4_a_replacement_is_drawn_at_the_rejected_position() -> None:
    rows = [np.array([0, 0, 1, 0], np.float32), np.array([0, 0, 0, 1], np.float32)]
    proposal = Proposal([1], [np.array([0, 1, 0, 0], np.float32)], None)
    tokens = {
        result
        for result, _ in every_path(
            lambda path: tuple(accept_sampled(proposal, lambda i: rows[i], path, 0))
        )
    }
    assert {(2,)} == tokens


def test_equal_distributions_accept_everything() -> None:
    p = np.array([0.25, 0.75, 0, 0], np.float32)
    for tokens, _ in every_path(
        lambda path: accept_sampled(Proposal([0, 1], [p, p], None), lambda _: p, path, 0)
    ):
        assert [0, 1] == tokens[:2]
        assert 3 == len(tokens)


@given(st.lists(st.integers(0, 2), max_size=5), st.lists(st.integers(0, 2), min_size=6, max_size=6))
def test_greedy_acceptance_is_what_plain_decoding_puts_out(
    drafts: list[int], best: list[int]
) -> None:
    tokens = accept_greedy(drafts, best)
    assert best[: len(tokens)] == tokens
    held = 0
    while held < len(drafts) and drafts[held] == best[held]:
        held += 1
    assert held + 1 == len(tokens)
