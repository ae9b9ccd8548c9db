"""Counts per round and position, and what makes a draft ineffective."""

from __future__ import annotations

import pytest

from dspark.runtime.statistics import INEFFECTIVE_WINDOW, Acceptance, EngineStatistics


def test_rounds_tokens_and_positions() -> None:
    counts = Acceptance()
    for drafts, tokens in ((4, 1), (4, 5), (4, 3), (2, 3), (0, 1)):
        counts.count(drafts, tokens, last_is_draft=False)
    assert 5 == counts.rounds
    assert 13 == counts.round_tokens
    assert 2.6 == counts.tokens_per_round
    assert [4, 4, 3, 3] == counts.verified
    assert [3, 3, 1, 1] == counts.accepted
    assert (0.75, 0.75, 1 / 3, 1 / 3) == counts.acceptance_per_position


def test_j5_what_a_stop_cut_off_was_neither_verified_nor_accepted() -> None:
    counts = Acceptance()
    counts.count(4, 2, last_is_draft=True)
    assert [1, 1, 0, 0] == counts.verified == counts.accepted
    assert 2 == counts.round_tokens


def test_counts_of_requests_add_up() -> None:
    one, other = Acceptance(), Acceptance()
    one.count(1, 2, last_is_draft=False)
    other.count(3, 1, last_is_draft=False)
    other.draft_skipped["length"] += 2
    one.add(other)
    assert (2, 3, [2, 1, 1], [1, 0, 0]) == (
        one.rounds,
        one.round_tokens,
        one.verified,
        one.accepted,
    )
    assert 2 == one.draft_skipped["length"]
    assert 0.0 == Acceptance().tokens_per_round


@pytest.mark.parametrize(
    ("rounds", "extra", "ineffective"),
    [(255, 0, False), (256, 0, True), (256, 51, True), (256, 52, False), (300, 0, True)],
)
def test_a_draft_is_ineffective_below_1_2_tokens_over_256_rounds(
    rounds: int, extra: int, ineffective: bool
) -> None:
    statistics = EngineStatistics()
    for number in range(rounds):
        statistics.count_drafted_round(2 if number < extra else 1)
    assert ineffective == ("draft_ineffective" in statistics.health)
    for _ in range(INEFFECTIVE_WINDOW):
        statistics.count_drafted_round(2)
    assert not statistics.health
