"""A request takes tokens in order and ends at the first thing that ends it."""

from __future__ import annotations

import pytest

from dspark.runtime.choices import SeededChoices
from dspark.runtime.params import SamplingParams
from dspark.runtime.request import Request
from dspark.runtime.sampling import History
from dspark.runtime.statistics import RequestStatistics
from dspark.runtime.text import TextStream

STOP = 12
WORDS = {10: "ten ", 11: "eleven ", STOP: "<end>", 20: "twenty ", 21: "one", 22: " two"}


def request(
    limit: int, stops: tuple[str, ...] = (), stop_ids: frozenset[int] = frozenset()
) -> Request:
    return Request(
        id=3,
        params=SamplingParams(max_tokens=limit),
        tokens=[1, 2],
        limit=limit,
        drafts=4,
        choices=SeededChoices(0),
        text=TextStream(lambda ids: "".join(WORDS[i] for i in ids), stops),
        stop_ids=stop_ids,
        history=History(frozenset({1, 2})),
        statistics=RequestStatistics(prompt_tokens=2),
    )


ROUND = [10, 11, STOP, 20, 21, 22]


@pytest.mark.parametrize(
    ("cap", "reason", "kept"),
    [(5, "stop", 3), (3, "stop", 3), (2, "length", 2), (6, "stop", 3), (1, "length", 1)],
)
def test_j2_stop_and_cap_inside_one_round(cap: int, reason: str, kept: int) -> None:
    asked = request(cap, stop_ids=frozenset({STOP}))
    assert kept == asked.take(ROUND)
    event = asked.event()
    assert (reason, tuple(ROUND[:kept])) == (event.finish_reason, event.token_ids)
    assert [1, 2, *ROUND[:kept]] == asked.tokens
    assert kept == asked.statistics.completion_tokens
    # The text of the id that ended it is not the caller's.
    assert "".join(WORDS[i] for i in ROUND[:kept] if i != STOP) == event.text


def test_j2_a_stop_string_over_two_rounds() -> None:
    asked = request(9, stops=("twenty one",))
    assert 4 == asked.take(ROUND[:4])
    first = asked.event()
    assert "ten eleven <end>" == first.text
    assert first.finish_reason is None
    assert 1 == asked.take(ROUND[4:])
    second = asked.event()
    assert ("", (21,), "stop") == (second.text, second.token_ids, second.finish_reason)


def test_what_was_held_back_comes_when_the_cap_ends_it() -> None:
    asked = request(4, stops=("twenty one",))
    asked.take(ROUND)
    event = asked.event()
    assert ("ten eleven <end>twenty ", "length") == (event.text, event.finish_reason)


def test_news_are_told_once() -> None:
    asked = request(9)
    asked.take([10])
    asked.event()
    asked.take([11])
    assert ((11,), "eleven ") == (asked.event().token_ids, "eleven ")
