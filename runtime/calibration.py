"""How far a draft's confidence can be believed, and the temperatures that make it believable.

The schedule multiplies a draft's chances into survival and compares that with what a pass costs, so
the figures must be right as they stand, not only in the right order. This is the DSpark paper's
sequential temperature scaling: position by position from the left, the temperature under which
survival up to there comes out as often as it says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dspark.runtime.confidence import ConfidenceSchedule

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

# A schedule under which whole blocks are verified: what calibration must see, and costs nothing to
# run at batch 1.
VERIFY_ALL = ConfidenceSchedule(speed=((1, 1.0), (1_000_000_000, 1.0)))

_BINS = 20
_TEMPERATURES = np.exp(np.linspace(np.log(0.1), np.log(10.0), 201))
# What a chance of exactly 0 or 1 is taken for, which no temperature could change.
_SURE = 1e-12


@dataclass(frozen=True, slots=True)
class ConfidenceRound:
    """A round's drafts: the chance that each holds if all before it do, and how many held."""

    chances: tuple[float, ...]
    accepted: int


def fit_temperatures(rounds: Sequence[ConfidenceRound]) -> tuple[float, ...]:
    """`ConfidenceSchedule.temperatures`, from 0.1 to 10, for as many drafts as any round has.

    Some thousand rounds are needed, made without temperatures and, so that late positions are not
    seen after confident ones alone, under `VERIFY_ALL`. Of temperatures that these rounds cannot
    tell apart, the one nearest to 1 is taken.
    """
    temperatures: list[float] = []
    for position in range(_positions(rounds)):
        logits, held = _seen(rounds, position)
        before = _survival(logits[:, :position], temperatures)
        errors = np.array(
            [
                _error(before * _sigmoid(logits[:, position] / temperature), held)
                for temperature in _TEMPERATURES
            ]
        )
        # Half of what the share that held is off by chance.
        doubt = 0.5 * float(held.std()) / len(held) ** 0.5
        good = _TEMPERATURES[errors <= errors.min() + doubt]
        temperatures.append(float(good[int(np.argmin(np.abs(np.log(good))))]))
    return tuple(temperatures)


def calibration_error(
    rounds: Sequence[ConfidenceRound], temperatures: Sequence[float] = ()
) -> tuple[float, ...]:
    """Per position, how far survival up to it is from how often it came true, from 0 to 1.

    It is the expected calibration error in 20 bins. Few rounds have one of their own, by chance
    alone: about 0.01 at 5,000.
    """
    errors: list[float] = []
    for position in range(_positions(rounds)):
        logits, held = _seen(rounds, position)
        errors.append(_error(_survival(logits, temperatures), held))
    return tuple(errors)


def _positions(rounds: Sequence[ConfidenceRound]) -> int:
    return max((len(one.chances) for one in rounds), default=0)


def _seen(rounds: Sequence[ConfidenceRound], position: int) -> tuple[Floats, Flags]:
    """Of the rounds that got there: the logits up to `position` [rounds, position + 1]."""
    seen = [one for one in rounds if len(one.chances) > position]
    chances = np.array([one.chances[: position + 1] for one in seen]).clip(_SURE, 1 - _SURE)
    return np.log(chances / (1 - chances)), np.array([one.accepted > position for one in seen])


def _survival(logits: Floats, temperatures: Sequence[float]) -> Floats:
    divisors = np.ones(logits.shape[1])
    count = min(len(temperatures), len(divisors))
    divisors[:count] = temperatures[:count]
    survival: Floats = _sigmoid(logits / divisors).prod(axis=1)
    return survival


def _sigmoid(logits: Floats) -> Floats:
    out: Floats = 1 / (1 + np.exp(-logits))
    return out


def _error(predicted: Floats, held: Flags) -> float:
    bins = np.minimum((predicted * _BINS).astype(np.int64), _BINS - 1)
    off = np.bincount(bins, predicted - held, minlength=_BINS)
    return float(np.abs(off).sum() / len(held))
