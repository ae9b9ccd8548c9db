"""Temperatures found again where they were put in, and errors that are what they say."""

from __future__ import annotations

import numpy as np
import pytest

from dspark.runtime.calibration import (
    VERIFY_ALL,
    ConfidenceRound,
    calibration_error,
    fit_temperatures,
)

TRUE = (2.0, 0.6, 1.5, 1.0)


def rounds_of(temperatures: tuple[float, ...], count: int, seed: int) -> list[ConfidenceRound]:
    """Rounds of a head whose logits are too large by these factors."""
    random = np.random.default_rng(seed)
    out = []
    for _ in range(count):
        # What is likely to hold at first: rounds must reach the last positions.
        logits = random.normal(1.5, 1.5, len(temperatures))
        true = 1 / (1 + np.exp(-logits / np.array(temperatures)))
        failed = np.flatnonzero(random.random(len(true)) >= true)
        said = 1 / (1 + np.exp(-logits))
        held = int(failed[0]) if len(failed) else len(true)
        out.append(ConfidenceRound(tuple(float(chance) for chance in said), held))
    return out


def test_the_temperatures_of_a_head_are_found() -> None:
    rounds, others = rounds_of(TRUE, 6000, seed=1), rounds_of(TRUE, 6000, seed=2)
    found = fit_temperatures(rounds)
    assert len(TRUE) == len(found)
    np.testing.assert_allclose(np.log(found), np.log(TRUE), atol=0.3)
    before, after = calibration_error(others), calibration_error(others, found)
    assert before[0] > 0.06
    assert max(after) < 0.03
    # Given the right temperatures, what is left is chance.
    assert max(calibration_error(others, TRUE)) < 0.02


def test_a_head_that_is_right_is_left_alone() -> None:
    found = fit_temperatures(rounds_of((1.0, 1.0), 6000, seed=3))
    np.testing.assert_allclose(np.log(found), 0, atol=0.2)


def test_few_rounds_are_no_reason_to_move() -> None:
    # By chance alone temperatures as far away as 1.8 fit these rounds best.
    for seed in range(3):
        found = fit_temperatures(rounds_of((1.0,) * 3, 400, seed))
        np.testing.assert_allclose(np.log(found), 0, atol=0.25)


def test_each_position_is_judged_by_the_rounds_that_got_there() -> None:
    rounds = [
        ConfidenceRound((0.5,), 1),
        ConfidenceRound((0.5, 0.5), 0),
        ConfidenceRound((0.5, 0.5), 2),
        ConfidenceRound((), 0),
    ]
    # Two of three held where half was said; of the two with a second draft, one held, not a fourth.
    assert pytest.approx([2 / 3 - 0.5, 0.5 - 0.25]) == calibration_error(rounds)


def test_the_error_is_taken_bin_by_bin() -> None:
    rounds = [ConfidenceRound((0.3,), 1), ConfidenceRound((0.7,), 0)]
    # On average all is well: half was said, half held.
    assert pytest.approx([0.7]) == calibration_error(rounds)


def test_certainty_is_a_number_too() -> None:
    rounds = [ConfidenceRound((1.0, 0.0), 1)] * 4
    assert pytest.approx([0.0, 0.0], abs=1e-9) == calibration_error(rounds)
    assert 2 == len(fit_temperatures(rounds))
    assert () == fit_temperatures([]) == calibration_error([])


def test_the_schedule_to_record_with_verifies_all() -> None:
    chances = [[0.9, 0.01, 0.01]] * 500
    assert [3] * 500 == VERIFY_ALL.lengths(chances, 4096)
