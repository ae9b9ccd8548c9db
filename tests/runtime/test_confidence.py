"""The schedule against the paper's example, a naive search, and its promise not to look ahead."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dspark.runtime.acceptance import Proposal, accept_sampled
from dspark.runtime.choices import Purpose
from dspark.runtime.confidence import ConfidenceSchedule
from tests.runtime.enumeration import Path, law

FLAT = ConfidenceSchedule(speed=((1, 100.0), (10_000, 100.0)))
PAPER = ConfidenceSchedule(speed=((1, 1.0), (2, 0.5), (3, 0.45)))


def test_with_a_flat_curve_everything_is_verified() -> None:
    assert [3, 2, 0] == FLAT.lengths([[0.9, 0.5, 0.01], [0.2, 0.2], []])


def test_a_draft_that_surely_fails_is_not_verified() -> None:
    assert [1] == FLAT.lengths([[0.9, 0.0, 1.0]])


def test_the_papers_counterexample_stops_before_it_looks() -> None:
    # Two drafts would pay in the first case (2.52 * 0.45 > 1), and looking is what is wrong.
    assert [0] == PAPER.lengths([[0.8, 0.9]])
    assert [0] == PAPER.lengths([[0.8, 0.0]])


def test_a_retrospective_maximum_would_bias_the_output() -> None:
    p, q = np.array([0.7, 0.3], np.float32), np.array([0.5, 0.5], np.float32)

    def first_token(path: Path, *, looks_ahead: bool) -> int:
        draft = path.pick(q, 0, Purpose.DRAFT)
        chances = [[0.8, 0.9 if draft == 0 else 0.0]]
        if looks_ahead:
            worth = {n: t * PAPER.passes_per_second(1 + n) for n, t in ((0, 1), (1, 1.8))}
            worth[2] = (1.8 + 0.8 * chances[0][1]) * PAPER.passes_per_second(3)
            length = max(worth, key=lambda n: worth[n])
        else:
            length = PAPER.lengths(chances)[0]
        proposal = Proposal([draft], [q], None).first(min(length, 1))
        return accept_sampled(proposal, lambda _: p, path, 0)[0]

    right = law(lambda path: first_token(path, looks_ahead=False))
    assert right[0] == pytest.approx(0.7, abs=1e-6)
    wrong = law(lambda path: first_token(path, looks_ahead=True))
    assert wrong[0] == pytest.approx(0.85, abs=1e-6)


CHANCES = st.lists(st.lists(st.floats(0.01, 1), max_size=4), min_size=1, max_size=4)
RATES = st.lists(st.floats(0.1, 10), min_size=20, max_size=20)


def naive_lengths(chances: list[list[float]], rates: list[float]) -> list[int]:
    lengths, tau = [0] * len(chances), float(len(chances))
    best = tau * rates[len(chances) - 1]
    while True:
        options = []
        for request, row in enumerate(chances):
            if lengths[request] < len(row):
                survival = 1.0
                for chance in row[: lengths[request] + 1]:
                    survival *= chance
                options.append((-survival, lengths[request], request))
        if not options:
            return lengths
        negative, _, request = min(options)
        tau -= negative
        worth = tau * rates[len(chances) + sum(lengths)]
        if worth <= best:
            return lengths
        best = worth
        lengths[request] += 1


@given(chances=CHANCES, rates=RATES)
def test_lengths_equal_the_naive_search(chances: list[list[float]], rates: list[float]) -> None:
    schedule = ConfidenceSchedule(speed=tuple(enumerate(rates, 1)))
    assert naive_lengths(chances, rates) == schedule.lengths(chances)


@given(chances=CHANCES, rates=RATES, later=st.floats(0.01, 1))
def test_a_cut_does_not_depend_on_what_lies_behind_it(
    chances: list[list[float]], rates: list[float], later: float
) -> None:
    # c[j+1] is computed from draft j: whether j is verified must not depend on it.
    schedule = ConfidenceSchedule(speed=tuple(enumerate(rates, 1)))
    lengths = schedule.lengths(chances)
    for request, length in enumerate(lengths):
        for behind in range(length + 1, len(chances[request])):
            changed = [list(row) for row in chances]
            changed[request][behind] = later
            assert length == schedule.lengths(changed)[request]


def test_speed_between_and_beyond_the_points() -> None:
    schedule = ConfidenceSchedule(speed=((2, 10.0), (4, 5.0)))
    assert 10.0 == schedule.passes_per_second(1)
    assert 1 / 0.15 == pytest.approx(schedule.passes_per_second(3))
    assert 5.0 == schedule.passes_per_second(4)
    assert 2.5 == pytest.approx(schedule.passes_per_second(8))


def test_temperatures_divide_the_logits_position_by_position() -> None:
    schedule = ConfidenceSchedule(speed=((1, 1.0),), temperatures=(2.0,))
    assert 1 / (1 + np.exp(-1.5)) == pytest.approx(schedule.probability(3.0, 0))
    assert 1 / (1 + np.exp(-3.0)) == pytest.approx(schedule.probability(3.0, 1))
    assert 0.0 == schedule.probability(-1e4, 1)
    assert 1.0 == schedule.probability(1e4, 1)


@pytest.mark.parametrize("speed", [(), ((2, 1.0), (1, 1.0)), ((1, 0.0),), ((1, 1.0), (1, 2.0))])
def test_a_curve_that_is_none_is_refused(speed: tuple[tuple[int, float], ...]) -> None:
    with pytest.raises(ValueError, match="rising tokens and positive rates"):
        ConfidenceSchedule(speed=speed)
    with pytest.raises(ValueError, match="`temperatures` must be positive"):
        ConfidenceSchedule(speed=((1, 1.0),), temperatures=(0.0,))
