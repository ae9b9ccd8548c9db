"""confidence.cu against float64, and the cut against the runtime's own schedule."""

from __future__ import annotations

import numpy as np
import pytest

from dspark.kernels.arrays import DeviceArray
from dspark.runtime.confidence import ConfidenceSchedule
from tests.support.kernel_bench import Bench, Floats, requested, rounded

REQUESTS, ROWS, AT, SLOTS = 3, 6, 2, 4
WIDTH, RANK, ENTRIES, BLOCK = 8 * 50, 8 * 17, 11, 64
assert (WIDTH + RANK) // 8 > 2 * 32
assert AT + SLOTS <= ROWS

SPEED = ((4, 100.0), (8, 96.0), (16, 70.0), (32, 30.0))
MOST = 60


def tensors(rank: int = RANK) -> tuple[Floats, Floats, Floats, Floats]:
    """Weight, bias, table and hidden states."""
    random = np.random.default_rng(30)
    shapes = (WIDTH + rank,), (1,), (ENTRIES, rank), (REQUESTS, ROWS, WIDTH)
    weight, bias, table, hidden = (rounded(random.normal(size=shape)) for shape in shapes)
    return weight / 8, bias, table, hidden


def tokens() -> np.ndarray:
    return np.random.default_rng(31).integers(0, ENTRIES, (REQUESTS, SLOTS + 1))


def logits_of(bench: Bench, before: np.ndarray, rank: int, grid: int = 2) -> np.ndarray:
    weight, bias, table, hidden = tensors(rank)
    out = bench.poison((REQUESTS, SLOTS), "logits", "f32")
    args = (
        *(bench.bf16(weight, "weight"), bench.bf16(bias, "bias"), bench.bf16(table, "table")),
        *(bench.bf16(hidden, "hidden"), bench.i32(before, "tokens"), out),
    )
    bench.launch(
        *("confidence", grid, BLOCK, *args),
        *(REQUESTS, ENTRIES, rank, ROWS, AT, WIDTH, SLOTS),
    )
    return bench.device.read(out)


@pytest.mark.parametrize("rank", [RANK, 0])
def test_the_logits(bench: Bench, rank: int) -> None:
    # Four warps for twelve slots; the last token of a request is before no slot.
    weight, bias, table, hidden = tensors(rank)
    before = tokens()

    found = logits_of(bench, before, rank)

    read = np.concatenate([hidden[:, AT : AT + SLOTS], table[before[:, :SLOTS]]], axis=-1)
    expected = read @ weight + bias
    # Sums of float32 in another order: off by their own rounding, and of both signs.
    scale = np.abs(read) @ np.abs(weight)
    assert (np.abs(found - expected) < 3e-7 * scale).all()


def test_a_token_that_is_not_there_is_seen(bench: Bench) -> None:
    before = tokens()
    before[0, 1], before[2, 3] = -1, ENTRIES
    # The tokens behind the last slot are no concern of this head.
    before[:, SLOTS] = 99

    found = logits_of(bench, before, RANK)

    assert [[0, 1], [2, 3]] == np.argwhere(np.isnan(found)).tolist()


def test_a_head_without_a_table_asks_for_no_token(plain_bench: Bench) -> None:
    found = logits_of(plain_bench, np.full((REQUESTS, SLOTS + 1), -1), 0)

    assert not np.isnan(found).any()


def test_weights_and_rows_are_read_as_vectors(plain_bench: Bench) -> None:
    logits_of(plain_bench, tokens(), RANK, grid=1)

    ((_, report),) = plain_bench.driver.reports
    slots = REQUESTS * SLOTS
    each = 2 * slots * (WIDTH + RANK)
    read = report.reads["weight"], report.reads["hidden"], report.reads["table"]
    assert [each, 2 * slots * WIDTH, 2 * slots * RANK] == [one.requested for one in read]
    assert requested(report) < 2 * each + 100 * 32 * slots


def counted(bench: Bench, before: list[list[int]], wanted: list[int]) -> list[int]:
    rows_of = bench.poison((len(before),), "rows_of", "i32")
    args = bench.i32(before, "tokens"), bench.i32(wanted, "wanted"), rows_of
    bench.launch("count_drafts", 1, 32, *args, len(before), len(before[0]) - 1)
    return bench.ints(rows_of)


def test_rows_are_the_drafts_that_are_there(bench: Bench) -> None:
    # 35 requests for 32 threads; none, one, two and all of the drafts are there.
    cases = {
        (9, 0, 2, 3): {3: 4, 2: 3, 0: 1, -1: 0, 7: 4},
        (9, -1, 2, 3): {3: 1, 0: 1, -1: 0},
        (9, 1, -1, 3): {3: 2, 2: 2, 1: 2},
        (9, 1, 2, -1): {3: 3, 1: 2},
    }
    rows = [(list(row), want, rows) for row, each in cases.items() for want, rows in each.items()]
    rows = (rows * 3)[:35]

    found = counted(bench, [row for row, _, _ in rows], [want for _, want, _ in rows])

    assert [count for _, _, count in rows] == found


def cut(
    bench: Bench,
    schedule: ConfidenceSchedule,
    logits: np.ndarray,
    wanted: list[int],
    rows_of: list[int],
    others: int = 0,
    most: int = MOST,
) -> list[int]:
    requests, slots = logits.shape
    temperatures = np.ones(slots)
    temperatures[: len(schedule.temperatures)] = schedule.temperatures
    rates = np.array([schedule.passes_per_second(size) for size in range(most + 1)])
    number = len(bench.driver.reports)
    rows: DeviceArray = bench.i32(rows_of, f"rows_of {number}")
    args = (
        bench.f32(logits, f"logits {number}"),
        bench.device.array(temperatures, "f64", f"temperatures {number}"),
        bench.device.array(rates, "f64", f"rates {number}"),
        bench.i32([others], f"others {number}"),
        bench.i32(wanted, f"wanted {number}"),
    )
    smem = 12 * requests * slots
    bench.launch("cut_drafts", 1, 32, *args, rows, requests, slots, most, smem=smem)
    return bench.ints(rows)


def expected_rows(
    schedule: ConfidenceSchedule,
    logits: np.ndarray,
    wanted: list[int],
    rows_of: list[int],
    others: int = 0,
) -> list[int]:
    """What the runtime makes of it: requests without drafts are not asked about."""
    drafting = [request for request, count in enumerate(wanted) if count > 0]
    chances = [
        [
            schedule.probability(float(logits[request, slot]), slot)
            for slot in range(rows_of[request] - 1)
        ]
        for request in drafting
    ]
    rows = list(rows_of)
    for request, length in zip(drafting, schedule.lengths(chances, others), strict=True):
        rows[request] = 1 + length
    return rows


def test_the_cut_is_the_schedules(bench: Bench) -> None:
    """Seven requests with five slots; one wants nothing, one fills up, some are broken."""
    random = np.random.default_rng(32)
    seen = set()
    for number in range(8):
        schedule = ConfidenceSchedule(SPEED, (0.7, 1.0, 1.9) if number % 2 else ())
        logits = random.normal(1.0, 2.5, (7, 5)).astype(np.float32)
        wanted = [5, 5, 3, 0, 5, -1, 5]
        rows_of = [6, 6, 4, [1, 3][number // 4], [1, 3][number % 2], 0, 6]
        others = [0, 1, 4, 9][number % 4]

        found = cut(bench, schedule, logits, wanted, rows_of, others)

        assert expected_rows(schedule, logits, wanted, rows_of, others) == found
        seen |= {(before, after) for before, after in zip(rows_of, found, strict=True)}
    # Requests that lose all, some and none of their drafts.
    assert {(6, 1), (6, 3), (6, 6), (1, 1), (0, 0)} <= seen


def test_of_equals_the_earlier_draft_then_the_lower_request(bench: Bench) -> None:
    # All drafts are certain, and there is room in the pass for four.
    schedule = ConfidenceSchedule(((3, 100.0), (7, 100.0), (8, 1.0)))
    logits = np.full((3, 3), 60.0, np.float32)
    assert schedule.probability(60.0, 0) == 1.0

    found = cut(bench, schedule, logits, [3] * 3, [4] * 3)

    assert [3, 2, 2] == found == expected_rows(schedule, logits, [3] * 3, [4] * 3)


def test_nothing_behind_the_first_that_does_not_pay_is_looked_at(bench: Bench) -> None:
    # The second draft would not pay, both together would: the dip of the curve is not crossed.
    schedule = ConfidenceSchedule(((1, 100.0), (2, 99.0), (3, 10.0), (4, 90.0)))
    logits = np.full((1, 3), 9.0, np.float32)

    found = cut(bench, schedule, logits, [3], [4])

    assert 90.0 * 3.9 > 99.0 * 2
    assert [2] == found == expected_rows(schedule, logits, [3], [4])


def test_a_draft_needs_to_bring_more(bench: Bench) -> None:
    # Expected tokens double and the rate halves: as much as before is not more.
    schedule = ConfidenceSchedule(((1, 100.0), (2, 50.0)))
    logits = np.full((1, 1), 60.0, np.float32)

    found = cut(bench, schedule, logits, [1], [2])

    assert [1] == found == expected_rows(schedule, logits, [1], [2])


def test_what_cannot_hold_is_not_verified(bench: Bench) -> None:
    # Rates that rise would pay for anything, but for what has no chance at all.
    schedule = ConfidenceSchedule(((1, 1.0), (50, 1000.0)))
    logits = np.full((4, 3), 5.0, np.float32)
    logits[0, 1], logits[1, 0], logits[2, 2] = np.nan, -np.inf, -701.0

    found = cut(bench, schedule, logits, [3] * 4, [4] * 4)

    assert [2, 1, 3, 4] == expected_rows(schedule, logits, [3] * 4, [4] * 4)
    assert [2, 1, 3, 4] == found


@pytest.mark.parametrize(("most", "rows"), [(8, [3, 3]), (7, [3, 2]), (3, [1, 1])])
def test_beyond_the_measured_passes_nothing_is_verified(
    plain_bench: Bench, most: int, rows: list[int]
) -> None:
    schedule = ConfidenceSchedule(((1, 100.0), (50, 99.0)))
    logits = np.full((2, 2), 60.0, np.float32)

    # Two tokens of others and the two newest ones come first.
    assert rows == cut(plain_bench, schedule, logits, [2, 2], [3, 3], others=2, most=most)
