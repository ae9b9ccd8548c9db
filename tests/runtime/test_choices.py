"""Random numbers that depend on the seed, the place and the purpose, and on nothing else."""

from __future__ import annotations

import numpy as np
import pytest

from dspark.runtime.choices import Purpose, SeededChoices


def test_k9_the_same_question_gets_the_same_answer_in_any_order() -> None:
    weights = np.full(50, 0.02, np.float32)
    one, other = SeededChoices(3), SeededChoices(3)
    places = list(range(40))
    forward = [one.pick(weights, place, Purpose.TARGET) for place in places]
    for place in places:
        other.pick(weights, place, Purpose.DRAFT)
        other.accept(0.5, place)
    backward = [other.pick(weights, place, Purpose.TARGET) for place in reversed(places)]
    assert forward == backward[::-1]
    assert len(set(forward)) > 20


def test_purposes_places_and_seeds_are_unrelated() -> None:
    weights = np.full(1000, 0.001, np.float32)

    def row(seed: int, purpose: Purpose, shift: int = 0) -> np.ndarray:
        choices = SeededChoices(seed)
        return np.array([choices.pick(weights, at + shift, purpose) for at in range(4000)])

    base = row(0, Purpose.DRAFT)
    for other in (
        row(1, Purpose.DRAFT),
        row(0, Purpose.TARGET),
        row(0, Purpose.DRAFT, 1),
        row(2**64 - 1, Purpose.DRAFT),
        row(-1, Purpose.TARGET),
    ):
        assert abs(np.corrcoef(base, other)[0, 1]) < 0.06


def test_k1_picks_follow_the_weights() -> None:
    weights = np.array([0.05, 0.0, 0.3, 0.65], np.float32) * 7
    choices = SeededChoices(11)
    counts = np.bincount(
        [choices.pick(weights, place, Purpose.DRAFT) for place in range(40_000)], minlength=4
    )
    expected = np.array([0.05, 0.3, 0.65]) * 40_000
    assert 0 == counts[1]
    chi_square = ((counts[[0, 2, 3]] - expected) ** 2 / expected).sum()
    assert chi_square < 13.8, "beyond the 0.999 quantile for two degrees of freedom"


@pytest.mark.parametrize("probability", [0.0, 0.1, 0.5, 0.999, 1.0])
def test_accept_is_true_as_often_as_asked(probability: float) -> None:
    choices = SeededChoices(12)
    share = np.mean([choices.accept(probability, place) for place in range(20_000)])
    assert abs(share - probability) < 4 * (probability * (1 - probability) / 20_000) ** 0.5 + 1e-9


def test_a_number_that_rounds_up_to_the_total_picks_the_last_weight(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(SeededChoices, "_uniform", lambda *_: 1.0)
    assert 1 == SeededChoices(0).pick(np.array([0.5, 0.5, 0.0], np.float32), 0, Purpose.DRAFT)
