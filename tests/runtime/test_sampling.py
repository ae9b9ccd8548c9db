"""Distributions against a naive reference, parameter by parameter."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dspark.runtime.errors import InvalidRequest
from dspark.runtime.params import SamplingParams
from dspark.runtime.sampling import History, distribution, logprob
from tests.runtime.naive_sampling import PARAMS, naive

# Apart by more than float32's rounding, so that no cut falls on a near tie.
LOGITS = st.lists(st.integers(-30, 30), min_size=4, max_size=8, unique=True).map(
    lambda values: [value / 7 for value in values]
)
TOKENS = st.lists(st.integers(0, 3), max_size=5)


@given(logits=LOGITS, prompt=TOKENS, output=TOKENS)
@pytest.mark.parametrize("name", [n for n in PARAMS if n not in {"all", "top-p", "min-p"}])
def test_distributions_equal_the_naive_ones(
    name: str, logits: list[float], prompt: list[int], output: list[int]
) -> None:
    params = PARAMS[name]
    history = History(frozenset(prompt)).followed_by(output)
    ours = distribution(np.array(logits, dtype=np.float32), params, history)
    assert np.float32 == ours.dtype
    np.testing.assert_allclose(ours, naive(logits, params, prompt, output), atol=2e-6)


@pytest.mark.parametrize("name", PARAMS)
@pytest.mark.parametrize("seed", range(20))
def test_distributions_of_random_logits_equal_the_naive_ones(name: str, seed: int) -> None:
    random = np.random.default_rng(seed)
    logits = random.normal(0, 2, 8).astype(np.float32)
    prompt, output = [int(t) for t in random.integers(0, 8, 3)], [2, 1, 2]
    ours = distribution(logits, PARAMS[name], History(frozenset(prompt)).followed_by(output))
    expected = naive([float(logit) for logit in logits], PARAMS[name], prompt, output)
    np.testing.assert_allclose(ours, expected, atol=1e-6)


def test_top_k_keeps_what_ties_with_the_last() -> None:
    logits = np.array([2.0, 1.0, 1.0, 0.0], dtype=np.float32)
    ours = distribution(logits, SamplingParams(max_tokens=1, top_k=2), History(frozenset()))
    assert [True, True, True, False] == (ours > 0).tolist()


def test_top_p_of_almost_one_keeps_the_likeliest() -> None:
    logits = np.array([50.0, 0.0, 0.0], dtype=np.float32)
    ours = distribution(logits, SamplingParams(max_tokens=1, top_p=1e-9), History(frozenset()))
    assert [1.0, 0.0, 0.0] == ours.tolist()


def test_greedy_takes_the_first_of_equals() -> None:
    logits = np.array([1.0, 3.0, 3.0], dtype=np.float32)
    params = SamplingParams(max_tokens=1, temperature=0.0)
    assert [0, 1, 0] == distribution(logits, params, History(frozenset())).tolist()


def test_a_history_stays_as_it_was_when_it_is_continued() -> None:
    history = History(frozenset({1}))
    history.add(2)
    later = history.followed_by([2, 3])
    assert {2: 1} == history.output
    assert {2: 2, 3: 1} == later.output


def test_the_largest_values_stay_numbers() -> None:
    logits = np.array([40.0, -40.0, 0.0], dtype=np.float32)
    extreme = SamplingParams(
        max_tokens=1,
        temperature=1e-5,
        repetition_penalty=1e9,
        presence_penalty=-1e9,
        frequency_penalty=1e9,
        logit_bias={0: 1e9, 1: -math.inf},
    )
    history = History(frozenset({0, 2})).followed_by([0, 1] * 1000)
    with np.errstate(all="raise", under="ignore"):
        ours = distribution(logits, extreme, history)
    assert [0, 0, 1] == ours.tolist()


def test_min_p_is_nothing_to_a_greedy_request() -> None:
    logits = np.array([1.0, 3.0, 2.9], dtype=np.float32)
    params = SamplingParams(max_tokens=1, temperature=0.0, min_p=0.5, top_k=2, top_p=0.4)
    assert [0, 1, 0] == distribution(logits, params, History(frozenset())).tolist()


def test_logprobs_are_the_models_own() -> None:
    logits = np.array([0.0, math.log(3), math.log(6)], dtype=np.float32)
    note = logprob(logits, 1, 2)
    assert note.token_id == 1
    assert note.logprob == pytest.approx(math.log(0.3))
    assert [2, 1] == [token for token, _ in note.top]
    assert note.top[0][1] == pytest.approx(math.log(0.6))
    assert () == logprob(logits, 1, 0).top


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"max_tokens": 0}, "`max_tokens` must be at least 1, not `0`"),
        ({"temperature": -0.1}, "`temperature` must be a number from 0 to 1e9, not `-0.1`"),
        ({"temperature": math.nan}, "`temperature` must be"),
        ({"temperature": math.inf}, "`temperature` must be"),
        ({"top_k": -1}, "`top_k` must be 0 or more"),
        ({"top_p": 0.0}, "`top_p` must be above 0 and at most 1"),
        ({"top_p": 1.1}, "`top_p` must be"),
        ({"min_p": 1.1}, "`min_p` must be from 0 to 1"),
        ({"repetition_penalty": 0.0}, "`repetition_penalty` must be from 1e-9 to 1e9"),
        ({"repetition_penalty": 1e39}, "`repetition_penalty` must be"),
        ({"presence_penalty": math.nan}, "`presence_penalty` must be from -1e9 to 1e9"),
        ({"frequency_penalty": -math.inf}, "`frequency_penalty` must be from -1e9 to 1e9"),
        ({"logprobs": -1}, "`logprobs` must be 0 or more"),
        ({"stop": ("a", "")}, "a `stop` string must not be empty"),
        ({"logit_bias": {3: math.inf}}, "of token `3` must be from -1e9 to 1e9, or `-inf` to"),
        ({"logit_bias": {3: math.nan}}, "to forbid it, not `nan`"),
        ({"logit_bias": {3: 1e39}}, "to forbid it, not `1e+39`"),
    ],
)
def test_a_value_out_of_range_is_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        SamplingParams(**{"max_tokens": 1, **changes})  # type: ignore[arg-type]
    assert message in str(refusal.value)
