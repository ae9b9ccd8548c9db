"""sampling.cu against the runtime's own parameters, distributions and draws."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from dspark.kernels.arrays import DeviceArray
from dspark.kernels.host.simulator import IN_ORDER
from dspark.runtime.choices import Purpose, SeededChoices
from dspark.runtime.params import SamplingParams
from dspark.runtime.sampling import History
from dspark.runtime.sampling import distribution as expected_chances
from tests.support.kernel_bench import Bench
from tests.support.kernel_draws import chi_square_is_likely, seed_for

VOCAB, BLOCK = 1003, 64
assert VOCAB > 2 * BLOCK
assert VOCAB % 32

CLOSE = 4e-6
"""How far a chance may be off by its own size: `exp` in float32, here and there, and a product."""

FINE, NO_NUMBER, FORBIDDEN = 0, 1, 2
Chances = npt.NDArray[np.float32]


@dataclass
class Case:
    """One request: what it wants, what it has said, and one row of logits for each place."""

    params: SamplingParams
    logits: Chances
    prompt: frozenset[int] = frozenset()
    output: dict[int, int] = field(default_factory=dict)
    drafts: tuple[int, ...] = ()

    def expected(self, place: int) -> Chances:
        history = History(self.prompt, self.output).followed_by(self.drafts[:place])
        return expected_chances(self.logits[place], self.params, history)


def wanting(**params: Any) -> SamplingParams:
    return SamplingParams(max_tokens=1, **params)


def row(seed: int, rows: int = 1, scale: float = 3.0) -> Chances:
    values = np.random.default_rng(seed).normal(size=(rows, VOCAB)) * scale
    return values.astype(np.float32)


def settings(bench: Bench, cases: list[Case], vocab: int) -> list[DeviceArray]:
    """The arrays from `history` to `biases_of`."""
    history = np.zeros((len(cases), vocab), np.int32)
    biases = max(2, *(len(case.params.logit_bias) + 1 for case in cases))
    bias_tokens = np.full((len(cases), biases), -1)
    biases_of = np.full((len(cases), biases), np.nan)
    for request, case in enumerate(cases):
        history[request, list(case.prompt)] = 1
        for token, count in case.output.items():
            history[request, token] += 2 * count
        for place, (token, bias) in enumerate(case.params.logit_bias.items()):
            bias_tokens[request, place], biases_of[request, place] = token, bias
    params = [case.params for case in cases]
    limits = [math.ceil(each.top_p * 2**62) for each in params]
    return [
        bench.i32(history, "history"),
        bench.f32([0.0 if each.greedy else each.temperature for each in params], "temperature"),
        bench.i32([each.top_k for each in params], "top_k"),
        bench.device.array(np.array(limits, np.uint64), "u64", "top_p"),
        bench.f32([each.min_p for each in params], "min_p"),
        bench.f32([each.repetition_penalty for each in params], "repetition"),
        bench.f32([each.presence_penalty for each in params], "presence"),
        bench.f32([each.frequency_penalty for each in params], "frequency"),
        bench.i32(bias_tokens, "bias_tokens"),
        bench.f32(biases_of, "biases_of"),
    ]


def chances_of(
    bench: Bench,
    cases: list[Case],
    counts: list[int] | None = None,
    first: int = 0,
    places: int | None = None,
    block: int = BLOCK,
) -> tuple[Chances, npt.NDArray[np.int32]]:
    """Chances and status of the rows from `first` on of every request."""
    logits = np.stack([case.logits for case in cases])
    _, rows, vocab = logits.shape
    places = first + rows if places is None else places
    tokens = np.full((len(cases), places + 2), -1)
    tokens[:, 0] = 17  # the anchor, which the history has counted already
    for request, case in enumerate(cases):
        tokens[request, 1 : 1 + len(case.drafts)] = case.drafts
    chances = bench.poison((len(cases), places, vocab), "chances", "f32")
    status = bench.poison((len(cases), places), "status", "i32")
    args = (
        bench.f32(logits, "logits"),
        bench.i32(tokens, "tokens"),
        bench.i32(counts or [places] * len(cases), "count_of"),
    )
    arrays = settings(bench, cases, vocab)
    bench.launch(
        *("distribution", (rows, len(cases)), block, *args, *arrays, chances, status),
        *(len(cases), rows, places + 2, places, first, arrays[-1].shape[1], vocab),
    )
    return bench.device.read(chances), bench.device.read(status)


def assert_close(found: Chances, expected: Chances) -> None:
    np.testing.assert_array_equal(found > 0, expected > 0)
    np.testing.assert_allclose(found, expected, rtol=CLOSE)
    assert abs(found.sum(dtype=np.float64) - 1) < 1e-6


def test_a_temperature(bench: Bench) -> None:
    cases = [
        Case(wanting(temperature=1.0), row(1, 2)),
        Case(wanting(temperature=0.3), row(2, 2)),
        Case(wanting(temperature=7.0), row(3, 2)),
    ]

    found, status = chances_of(bench, cases)

    for request, case in enumerate(cases):
        for place in range(2):
            assert_close(found[request, place], case.expected(place))
    assert [[FINE] * 2] * 3 == status.tolist()


CUTS = [
    {"top_k": 1},
    {"top_k": 40},
    {"top_k": VOCAB - 1},
    {"top_k": VOCAB},
    {"top_k": VOCAB + 5},
    {"top_p": 0.5},
    {"top_p": 0.97},
    {"top_p": 1e-9},
    {"min_p": 0.05},
    {"min_p": 1.0},
    {"top_k": 300, "top_p": 0.9, "min_p": 0.02, "temperature": 1.7},
]


def test_the_cuts(bench: Bench) -> None:
    cases = [Case(wanting(**cut), row(number)[:, : VOCAB - 600]) for number, cut in enumerate(CUTS)]

    found, _ = chances_of(bench, cases)

    kept = [int((case.expected(0) > 0).sum()) for case in cases]
    assert [1, 40] == kept[:2]
    assert 1 == kept[7] == kept[9]
    for request, case in enumerate(cases):
        assert_close(found[request, 0], case.expected(0))


def test_top_k_counts_what_is_above_zero(plain_bench: Bench) -> None:
    # Three tokens are possible and ten wanted; then all but one, with three of them impossible.
    few = np.full((1, 150), -np.inf, np.float32)
    few[0, [3, 77, 149]] = [1.0, 2.0, 1.5]
    many = row(5)[:, :150]
    many[0, [0, 60, 149]] = -np.inf
    cases = [Case(wanting(top_k=10), few), Case(wanting(top_k=149), many)]

    found, _ = chances_of(plain_bench, cases)

    assert_close(found[0, 0], cases[0].expected(0))
    assert_close(found[1, 0], cases[1].expected(0))
    assert [3, 147] == (found[:, 0] > 0).sum(axis=1).tolist()


def test_of_equals_top_k_keeps_all_and_top_p_the_first(bench: Bench) -> None:
    # 32 tokens of a chance of 1/32 each, exactly, at places all over the vocabulary.
    logits = np.full((1, VOCAB), -np.inf, np.float32)
    equals = np.sort(np.random.default_rng(6).permutation(VOCAB)[:32])
    logits[0, equals] = 2.0
    exactly, above = 5 / 32, 5 / 32 + 2.0**-50
    cases = [
        Case(wanting(top_k=5), logits),
        Case(wanting(top_p=exactly), logits),
        Case(wanting(top_p=above), logits),
        Case(wanting(top_p=1 - 2.0**-53), logits),
    ]

    found, _ = chances_of(bench, cases)

    kept = [np.flatnonzero(each[0]).tolist() for each in found]
    assert [equals[:count].tolist() for count in (32, 5, 6, 32)] == kept
    for request, case in enumerate(cases):
        assert_close(found[request, 0], case.expected(0))


def test_nearly_equal_is_not_equal(plain_bench: Bench) -> None:
    # Three chances that differ in the last bits alone, out of many that are far below.
    logits = np.zeros((1, 200), np.float32)
    logits[0, [20, 90, 150]] = [8.0, 8.0 + 2.0**-19, 8.0 - 2.0**-19]
    cases = [Case(wanting(top_k=1, temperature=each), logits) for each in (1.0, 1.3, 1.9, 2.6)]

    found, _ = chances_of(plain_bench, cases)

    for request, case in enumerate(cases):
        assert [90] == np.flatnonzero(case.expected(0)).tolist()
        assert_close(found[request, 0], case.expected(0))


def test_top_p_takes_the_larger_before_the_first_of_equals(bench: Bench) -> None:
    # Two of 1/4 stand before and behind sixteen of 1/32.
    logits = np.full((1, 200), -np.inf, np.float32)
    logits[0, 40:56], logits[0, [3, 199]] = math.log(1 / 32), math.log(1 / 4)
    case = Case(wanting(top_p=0.6), logits)

    found, _ = chances_of(bench, [case])

    assert [3, 40, 41, 42, 43, 199] == np.flatnonzero(found[0, 0]).tolist()
    assert_close(found[0, 0], case.expected(0))


def penalised() -> list[Case]:
    together = {
        "repetition_penalty": 1.3,
        "presence_penalty": 0.7,
        "frequency_penalty": 0.11,
        "temperature": 0.8,
    }
    bias = {44: 2.5, 35: -1.25, 967: -math.inf, 5: 4.0}
    every = [
        {"repetition_penalty": 1.7},
        {"repetition_penalty": 0.6},
        {"presence_penalty": 1.5},
        {"frequency_penalty": -0.3},
        {"logit_bias": bias},
        {**together, "logit_bias": bias},
    ]
    # Nobody's history is that of another; the biased tokens are among the last one's.
    return [
        Case(
            wanting(**each),
            row(number, 4),
            prompt=frozenset({7 * number, 4, 999}),
            output={4 + 7 * number: 1, 250: 7, 1002 - 7 * number: 3},
            drafts=(9 + 7 * number, 250, 9 + 7 * number),
        )
        for number, each in enumerate(every)
    ]


def test_penalties_and_biases(bench: Bench) -> None:
    """Each row by its own history: the drafts before it were put out, those behind it were not."""
    cases = penalised()

    found, _ = chances_of(bench, cases)

    assert (cases[0].expected(1) != cases[0].expected(0)).any()
    for request, case in enumerate(cases):
        for place in range(4):
            assert_close(found[request, place], case.expected(place))


def test_a_row_at_a_time(bench: Bench) -> None:
    """As drafts are drawn: one row for each launch, at its own place among those of a round."""
    cases = [
        Case(each.params, each.logits[[0] * 3], each.prompt, each.output, each.drafts)
        for each in penalised()[-2:]
    ]
    single = [Case(each.params, each.logits[:1]) for each in cases]
    for one, each in zip(single, cases, strict=True):
        one.prompt, one.output, one.drafts = each.prompt, each.output, each.drafts

    found, status = chances_of(bench, single, first=2, places=4)

    for request, case in enumerate(cases):
        assert_close(found[request, 2], case.expected(2))
    assert [[-1, -1, FINE, -1]] * 2 == status.tolist()
    assert np.isnan(found[:, [0, 1, 3]]).all()


def test_the_likeliest_of_a_greedy_request(bench: Bench) -> None:
    # Two zeros of different sign are alike, so the first of them is the first.
    zeros = np.full((1, VOCAB), -1.0, np.float32)
    zeros[0, [130, 700]] = [-0.0, 0.0]
    cases = [
        Case(wanting(temperature=0.0), row(7)),
        Case(wanting(temperature=0.0, logit_bias={3: 50.0}, top_k=3), row(8)),
        Case(wanting(temperature=0.0), zeros),
    ]

    found, status = chances_of(bench, cases)

    for request, case in enumerate(cases):
        np.testing.assert_array_equal(found[request, 0], case.expected(0))
    assert [3, 130] == found[1:, 0].argmax(axis=1).tolist()
    assert [[FINE]] * 3 == status.tolist()


def test_rows_that_are_no_distribution_are_flagged(bench: Bench) -> None:
    nan, infinite, nothing, forbidden = (row(seed)[:, :100] for seed in range(4))
    nan[0, 99], infinite[0, 64] = np.nan, np.inf
    nothing[:] = -np.inf
    forbidden[:] = -np.inf
    forbidden[0, [7, 95]] = 1.0
    ban = {"logit_bias": {7: -math.inf, 95: -math.inf}}
    cases = [
        Case(wanting(), nan),
        Case(wanting(temperature=0.0), infinite),
        Case(wanting(), nothing),
        Case(wanting(**ban), forbidden),
        Case(wanting(temperature=0.0, **ban), forbidden),
        Case(wanting(), row(9)[:, :100]),
    ]

    found, status = chances_of(bench, cases)

    wrong = [NO_NUMBER, NO_NUMBER, NO_NUMBER, FORBIDDEN, FORBIDDEN]
    assert [*wrong, FINE] == status[:, 0].tolist()
    np.testing.assert_array_equal(found[:5], 0.0)
    assert_close(found[5, 0], cases[5].expected(0))


def test_rows_beyond_a_requests_own_are_left_alone(bench: Bench) -> None:
    cases = [Case(wanting(), row(seed, 3)[:, :70]) for seed in range(3)]

    found, status = chances_of(bench, cases, counts=[3, 1, 0])

    assert [[True] * 3, [True, False, False], [False] * 3] == [
        [not np.isnan(place).any() for place in each] for each in found
    ]
    assert [[0, 0, 0], [0, -1, -1], [-1] * 3] == status.tolist()


def test_a_block_of_any_size_gives_the_same_bits(plain_bench: Bench, compiled: Any) -> None:
    cases = [Case(wanting(top_p=0.9, top_k=200), row(seed)) for seed in range(3)]
    other = Bench(compiled, plain_bench.driver.schedule)

    found, _ = chances_of(plain_bench, cases, block=32)
    others, _ = chances_of(other, cases, block=256)

    np.testing.assert_array_equal(found, others)


def draw(
    bench: Bench,
    chances: Chances,
    seeds: list[int],
    lengths: list[int],
    slot: int,
    draws: list[int] | None = None,
    block: int = BLOCK,
) -> list[list[int]]:
    requests, places, vocab = chances.shape
    number = len(bench.driver.reports)
    tokens = bench.poison((requests, places + 1), f"drawn {number}", "i32")
    bench.launch(
        *("draw_draft", requests, block, bench.f32(chances, f"chances {number}")),
        bench.i32(draws or [1] * requests, f"draws {number}"),
        bench.i32(lengths, f"lengths {number}"),
        bench.device.array(np.array(seeds, np.uint64), "u64", f"seeds {number}"),
        *(tokens, requests, places, slot, vocab),
    )
    return bench.ints(tokens)


def some_chances(requests: int, places: int, vocab: int = VOCAB) -> Chances:
    """Rows with runs of zeros, at the ends too; some sum to 1 and some do not."""
    random = np.random.default_rng(10)
    chances = random.exponential(size=(requests, places, vocab)) ** 4
    for request, each in enumerate(chances):
        each[:, : 40 * (request % 3)] = 0
        each[:, 300 : 300 + 64 * (request % 4)] = 0
        each[:, vocab - 33 * (request % 2) :] = 0
    chances /= chances.sum(axis=-1, keepdims=True) * random.choice([1, 1, 3, 50], (requests, 1, 1))
    return chances.astype(np.float32)


def test_draws_are_the_runtimes(bench: Bench) -> None:
    requests, slot = 12, 1
    chances = some_chances(requests, 2)
    random = np.random.default_rng(11)
    seeds = [int(seed) for seed in random.integers(0, 2**64, requests, np.uint64)]
    lengths = random.integers(0, 5000, requests).tolist()

    found = draw(bench, chances, seeds, lengths, slot)

    for request in range(requests):
        choices = SeededChoices(seeds[request])
        place = lengths[request] + 1 + slot
        expected = choices.pick(chances[request, slot], place, Purpose.DRAFT)
        assert [-1, -1, expected] == found[request]


@pytest.mark.parametrize("block", [32, 256])
def test_draws_do_not_depend_on_the_block(plain_bench: Bench, block: int) -> None:
    chances = some_chances(20, 1)
    seeds = list(range(20))

    found = draw(plain_bench, chances, seeds, [3] * 20, 0, block=block)

    expected = [SeededChoices(seed).pick(chances[seed, 0], 4, Purpose.DRAFT) for seed in range(20)]
    assert expected == [tokens[1] for tokens in found]


def test_the_borders_between_tokens(bench: Bench) -> None:
    """Numbers that fall on a border, and next to it: a token's share begins with its border."""
    chances = np.zeros((9, 1, 150), np.float32)
    chances[:, 0, [7, 40, 41, 149]] = [0.25, 0.5, 0.0, 0.25]
    whole = 2**53
    numbers = [0, 1, whole // 4 - 1, whole // 4, whole // 4 + 1]
    numbers += [whole // 4 * 3 - 1, whole // 4 * 3, whole - 2, whole - 1]
    seeds = [seed_for(number, 6, Purpose.DRAFT) for number in numbers]
    assert [number / whole for number in numbers] == [
        SeededChoices(seed)._uniform(6, Purpose.DRAFT) for seed in seeds
    ]

    found = draw(bench, chances, seeds, [5] * 9, 0)

    expected = [SeededChoices(seed).pick(chances[0, 0], 6, Purpose.DRAFT) for seed in seeds]
    assert [7, 7, 7, 40, 40, 40, 149, 149, 149] == expected == [each[1] for each in found]


def test_draws_are_those_of_exact_sums() -> None:
    """The runtime's float64 sums, against the integers of the kernels: how far they are apart."""
    chances = some_chances(4, 1, 20_000)[:, 0]
    for each in chances:
        exact = np.cumsum([int(float(chance) * 2.0**62) for chance in each], dtype=object)
        rounded = np.cumsum(each, dtype=np.float64)
        apart = [
            abs(float(int(above * 2**62) - below)) / 2**62
            for above, below in zip(rounded.tolist(), exact.tolist(), strict=True)
        ]
        assert max(apart) < len(each) * 2.0**-53 * rounded[-1]


def test_what_has_no_chance_is_no_token(bench: Bench) -> None:
    chances = np.zeros((3, 1, 100), np.float32)
    chances[1, 0, 50] = np.nan
    chances[2, 0, 99] = 2.0**-62

    found = draw(bench, chances, [1, 2, 3], [0, 0, 0], 0)

    assert [[-1, -1], [-1, -1], [-1, 99]] == found


def test_a_full_block_finds_no_chance_either(plain_bench: Bench) -> None:
    nothing = np.zeros((1, 1, 100), np.float32)

    assert [[-1, -1]] == draw(plain_bench, nothing, [1], [0], 0, block=1024)


def test_who_does_not_draw_keeps_its_token(plain_bench: Bench) -> None:
    chances = some_chances(3, 1, 90)

    found = draw(plain_bench, chances, [1, 2, 3], [0, 0, 0], 0, draws=[1, 0, 1])

    assert [True, False, True] == [tokens[1] >= 0 for tokens in found]


def test_a_captured_draw_follows_the_cache(plain_bench: Bench) -> None:
    """What a replay draws is a matter of the lengths in memory, not of those at the capture."""
    bench, chances = plain_bench, some_chances(2, 1, 90)
    lengths = bench.i32([5, 9], "lengths")
    tokens = bench.poison((2, 2), "tokens", "i32")
    args = bench.f32(chances, "chances"), bench.i32([1, 1], "draws"), lengths
    seeds = bench.device.array(np.array([3, 4], np.uint64), "u64", "seeds")
    kernel = bench.device.kernel("draw_draft")
    with bench.device.capture("draws") as graph:
        kernel(2, BLOCK, (*args, seeds, tokens, 2, 1, 0, 90))

    for moved in range(4):
        now = [5 + moved, 9 + 2 * moved]
        bench.device.write(lengths, np.array(now, np.int32))
        graph.replay()
        expected = [
            SeededChoices(seed).pick(chances[request, 0], now[request] + 1, Purpose.DRAFT)
            for request, seed in enumerate([3, 4])
        ]
        assert expected == [row[1] for row in bench.ints(tokens)]


def test_what_was_put_out_is_counted(bench: Bench) -> None:
    vocab, width = 20, 4
    out = [[5, 5, 19, 5], [5, 0, -1, -1], [-1, 3, 3, 3]] * 4
    kept = [4, 2, 1] * 4
    history = np.random.default_rng(12).integers(0, 9, (12, vocab)).astype(np.int32)
    counted = bench.i32(history, "history")

    # 48 places for 32 threads.
    args = bench.i32(out, "out"), bench.i32(kept, "kept"), counted
    bench.launch("note_tokens", 1, 32, *args, 12, width, vocab)

    expected = history.copy()
    for request, count in enumerate(kept):
        for token in out[request][:count]:
            if token >= 0:
                expected[request, token] += 2
    assert expected.tolist() == bench.ints(counted)


def test_a_row_moves_seven_times(plain_bench: Bench) -> None:
    """The logits once; then in and out for the largest, the weights and their scale."""
    chances_of(plain_bench, [Case(wanting(), row(0))])

    ((_, report),) = plain_bench.driver.reports
    moved = report.reads["logits"], report.reads["chances"], report.writes["chances"]
    assert [4 * VOCAB, 3 * 4 * VOCAB, 3 * 4 * VOCAB] == [each.requested for each in moved]
    # Nobody is penalised, so nobody's history is looked at.
    assert 0 == report.reads["history"].requested


@pytest.mark.slow
@pytest.mark.parametrize("params", [{}, {"top_p": 0.8}, {"top_k": 9, "temperature": 1.5}])
def test_the_law_of_the_draws(params: dict[str, Any], compiled: Any) -> None:
    requests, rounds, vocab = 200, 20, 37
    bench = Bench(compiled, IN_ORDER, "fast")
    logits = row(13)[:, :vocab] / 2
    case = Case(wanting(**params), logits)
    chances, _ = chances_of(bench, [case])
    counts = np.zeros(vocab)

    for number in range(rounds):
        seeds = [number * requests + seed for seed in range(requests)]
        rows = np.repeat(chances, requests, axis=0)
        found = draw(bench, rows, seeds, [number] * requests, 0)
        np.add.at(counts, [tokens[1] for tokens in found], 1)

    chi_square_is_likely(counts, case.expected(0))
