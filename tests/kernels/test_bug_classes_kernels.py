"""Faults that hit real users of other engines, as far as a kernel, a launch or a graph shows them.

`ROWS` says what went wrong in each; the numbering is that of `tests/runtime`, where the rows are
tested with whole engines. `SHOWN` names the tests of this folder that a row would turn red; a test
in this file names its rows at the beginning of its name. No row is without either.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dspark.kernels.arguments import check_arguments
from dspark.kernels.arrays import DeviceArray
from dspark.kernels.driver import STORAGE
from dspark.kernels.errors import LaunchError
from dspark.kernels.host.simulator import IN_ORDER
from dspark.kernels.signatures import SIZES, Signature
from dspark.runtime.acceptance import accept_greedy
from tests.support.attention_case import Case, Pass, ranges
from tests.support.gemm_bench import Products
from tests.support.kernel_bench import KERNELS, Bench, rounded

ROWS = {
    "C7": "candidate n is scored from the hidden state of slot n - 1",
    "C8": "the block stands one position early, so acceptance decays with the context",
    "C11": "the draft's buffers are sized by the rows of the verify pass",
    "C12": "output corrupted at one draft length only",
    "F5": "logits that are no numbers make a draft of the first ids",
    "F7": "a product with weights of another type is silently zero",
    "G10": "a position beyond the rotary table is read all the same",
    "G11": "draft and target with heads of two sizes share one store, or one kernel's settings",
    "H1": "several rows take other kernels than one, and a near tie flips",
    "I1": "the draft's cache is cut too far after each rejection",
    "I3": "all rows of a batch advance by the block, whatever each accepted",
    "I4": "a replacement is drawn from the row behind the rejected position",
    "I6": "a window of kept rows is a constant smaller than the drafts",
    "I7": "rows of dummies, or of requests long gone, poison a live cache",
    "I9": "requests that end at different times break the batch",
    "I10": "a per-position buffer still holds the round before",
    "K1": "drafts are drawn from a rounded softmax and judged by an exact one",
    "K2": "the target's processed distribution is compared with the draft's raw one",
    "K4": "the likeliest of the processed distribution is taken where one should be drawn",
    "K5": "the parameters of a request are not applied where drafts are verified",
    "L1": "a batch size between those prepared reads past its end",
    "L2": "a graph replays what held when it was captured",
    "L4": "a long run drifts and dies",
}

SHOWN = {
    "C7": (
        "test_markov::test_a_vanilla_walk",
        "test_markov::test_a_gated_walk",
        "test_markov::test_a_recurrent_walk",
        "test_confidence::test_the_logits",
        "test_plan::test_a_block_is_the_newest_token_and_masks",
    ),
    "C8": (
        "test_round::test_rows_stand_behind_what_is_committed",
        "test_plan::test_rows_see_what_the_runtime_says",
    ),
    "C12": (
        "test_round::test_accept_greedy_is_the_runtimes",
        "test_attention::test_shapes_of_heads",
    ),
    "F5": (
        "test_markov::test_what_is_no_number_is_no_choice_and_stays_with_its_request",
        "test_markov::test_a_broken_walk_stays_broken",
        "test_gemm::test_a_row_with_a_nan_has_no_best",
        "test_gemm::test_an_infinite_logit_is_no_best",
        "test_round::test_what_was_no_number_agrees_with_nothing",
        "test_accept_sampled::test_what_was_no_number_agrees_with_nothing",
        "test_sampling::test_rows_that_are_no_distribution_are_flagged",
    ),
    "F7": (
        "test_launch::test_an_array_of_another_type_is_not_taken",
        "test_gemm::test_every_fp8_is_worth_itself_times_its_scale",
    ),
    "G10": (
        "test_rope::test_a_position_beyond_the_table_is_seen",
        "test_combine::test_a_row_beyond_the_page_table_is_seen",
        "test_attention::test_a_range_that_is_none_is_seen",
        "test_plan::test_nothing_is_seen_at_the_last_position_or_beyond",
    ),
    "H1": (
        "test_gemm::test_a_row_is_the_same_bits_in_any_company",
        "test_gemm::test_a_row_is_the_same_bits_in_any_geometry",
        "test_attention::test_a_row_is_the_same_bits_in_any_company",
        "test_attention::test_a_row_is_the_same_bits_in_any_geometry",
        "test_attention::test_a_request_is_the_same_bits_beside_others",
        "test_combine::test_a_row_does_not_depend_on_the_others",
    ),
    "I1": (
        "test_round::test_commit_cuts_back_by_row",
        "test_round::test_every_accept_pattern_of_two_requests",
    ),
    "I3": ("test_round::test_every_accept_pattern_of_two_requests",),
    "I4": (
        "test_accept_sampled::test_a_draft_is_kept_below_its_quotient",
        "test_accept_sampled::test_accept_sampled_is_the_runtimes",
    ),
    "I6": (
        "test_round::test_accept_greedy_is_the_runtimes",
        "test_gemm_geometry::test_other_numbers_of_rows_are_refused",
        "test_attention_geometry::test_what_the_kernels_do_not_take",
    ),
    "I7": (
        "test_round::test_rows_without_a_place_get_one_each_that_nobody_reads",
        "test_rope::test_nothing_is_written_beside_the_slots",
        "test_attention::test_a_request_that_only_fills_up_the_batch",
    ),
    "I9": (
        "test_round::test_a_request_that_only_fills_up_gets_nothing",
        "test_accept_sampled::test_a_request_that_only_fills_up_gets_nothing",
        "test_plan::test_a_row_that_is_not_in_use_sees_nothing",
    ),
    "K1": (
        "test_accept_sampled::test_accept_sampled_is_the_runtimes",
        "test_accept_sampled::test_what_comes_out_follows_the_target",
        "test_sampling::test_draws_are_the_runtimes",
        "test_sampling::test_nearly_equal_is_not_equal",
    ),
    "K2": (
        "test_accept_sampled::test_accept_sampled_is_the_runtimes",
        "test_accept_sampled::test_what_comes_out_follows_the_target",
    ),
    "K4": (
        "test_sampling::test_a_temperature",
        "test_sampling::test_the_law_of_the_draws",
    ),
    "K5": (
        "test_sampling::test_a_row_at_a_time",
        "test_sampling::test_penalties_and_biases",
        "test_sampling::test_the_cuts",
        "test_sampling::test_draws_are_the_runtimes",
    ),
    "L2": (
        "test_graph::test_a_number_is_baked_in",
        "test_graph::test_memory_is_read_anew",
        "test_sampling::test_a_captured_draw_follows_the_cache",
        "test_attention_geometry::test_a_graph_follows_lengths_and_tables",
    ),
}
"""Tests elsewhere in this folder, as `file::test`."""

WITH_ENGINES = {
    "I8": "test_i8_a_known_prompt_is_taken_over_with_its_draft_context",
    "L3": "test_l3_greedy_text_is_the_targets_own",
    "L5": "test_l5_an_engine_is_not_made_for_what_no_kernel_takes",
}
"""Rows of these classes that no kernel can show alone; whole engines do, on the simulator: which
pages a prefix brings back, which graph a batch gets, and what is refused before there is a kernel.
"""

FOLDER = Path(__file__).parent
NAMED = re.compile(r"test_((?:[a-z]\d{1,2}_)+)")


def names_in(path: Path) -> set[str]:
    found = ast.walk(ast.parse(path.read_text("utf-8")))
    return {node.name for node in found if isinstance(node, ast.FunctionDef)}


def test_no_row_is_without_a_test_and_no_test_names_a_row_that_is_none() -> None:
    for named in SHOWN.values():
        for each in named:
            file, _, test = each.partition("::")
            assert test in names_in(FOLDER / f"{file}.py"), each
    matches = (NAMED.match(name) for name in names_in(Path(__file__)))
    here = {row for match in matches if match for row in match[1].upper().split("_")[:-1]}
    assert sorted(ROWS) == sorted({*here, *SHOWN})
    assert not set(ROWS) & set(WITH_ENGINES)
    engines = FOLDER.parent / "runtime" / "device_round" / "test_device_round.py"
    assert set(WITH_ENGINES.values()) <= names_in(engines)


# ------------------------------------------------------------------------ rows and positions


@pytest.mark.parametrize("length", [16, 1024, 12288])
def test_c8_the_newest_token_stands_behind_all_that_is_committed(
    length: int, plain_bench: Bench
) -> None:
    bench, width, page_size = plain_bench, 8, 32
    pages = -(-(length + width) // page_size)
    table = np.random.default_rng(length).permutation(pages)
    at, slots = (bench.poison((1, width), name, "i32") for name in ("at", "slots"))
    begins, ends = (bench.poison((1, width), name, "i32") for name in ("begins", "ends"))
    lengths, rows = bench.i32([length], "lengths"), bench.i32([width], "rows")

    placed = lengths, rows, bench.i32(table[None], "table"), at, slots
    bench.launch("place_rows", 1, 32, *placed, 1, width, pages, page_size, pages * page_size)
    seen = lengths, rows, begins, ends
    bench.launch("see_rows", 1, 32, *seen, 1, width, pages * page_size, 0, 1)

    positions = list(range(length, length + width))
    assert [positions] == bench.ints(at)
    assert [[table[p // page_size] * page_size + p % page_size for p in positions]] == (
        bench.ints(slots)
    )
    assert [[position + 1 for position in positions]] == bench.ints(ends)


def test_c11_a_buffer_for_the_drafts_is_not_taken_for_one_of_the_verify_pass(
    plain_bench: Bench,
) -> None:
    bench, drafts, requests = plain_bench, 4, 2
    verify = drafts + 1
    wide, narrow = (
        bench.i32(np.zeros((requests, each)), f"rows of {each}") for each in (verify, drafts)
    )
    rows, kept = bench.i32([verify] * 2, "rows"), bench.poison((requests,), "kept", "i32")
    right = {"tokens": wide, "best": bench.i32(np.zeros((requests, verify)), "best"), "out": wide}

    for wrong in right:
        given = right | {wrong: narrow}
        args = given["tokens"], given["best"], rows, given["out"], kept, requests, verify
        with pytest.raises(
            LaunchError, match=f"`{wrong}` of `accept_greedy` has 8 values, and the kernel uses 10"
        ):
            bench.launch("accept_greedy", 1, 64, *args)


@pytest.mark.parametrize("drafts", range(1, 16))
def test_c12_h1_i6_every_number_of_drafts_gives_the_same_row(
    drafts: int, plain_bench: Bench
) -> None:
    """The newest token's row, alone and before any number of drafts: products, attention, votes."""
    rows, random = drafts + 1, np.random.default_rng(7)
    products = Products(plain_bench, "bf16")
    x, matrix = rounded(random.normal(size=(16, 136))), random.normal(size=(24, 136))
    products.launch("gemm_f32", x[:1], matrix, products.out(1, 24, "f32"))
    alone = products.result()
    products.launch("gemm_f32", x[:rows], None, products.out(rows, 24, "f32"))
    np.testing.assert_array_equal(alone[0], products.result()[0])

    seen = ranges(70, rows)
    one, all_ = Pass(Case(64, width=1), [seen[:1]]), Pass(Case(64, width=rows), [seen])
    one.run(plain_bench)
    all_.run(plain_bench)
    np.testing.assert_array_equal(one.bits[0, 0], all_.bits[0, 0])
    all_.assert_right()

    best = np.arange(100, 100 + rows)[None]
    tokens = np.concatenate([[[9]], best[:, :-1]], axis=1)
    out = plain_bench.poison((1, rows), "accepted", "i32")
    kept = plain_bench.poison((1,), "kept", "i32")
    args = plain_bench.i32(tokens, "tokens"), plain_bench.i32(best, "best")
    plain_bench.launch(
        *("accept_greedy", 1, 32, *args, plain_bench.i32([rows], "rows"), out, kept, 1, rows)
    )
    assert ([rows], best.tolist()) == (plain_bench.ints(kept), plain_bench.ints(out))


def test_g11_two_sizes_of_heads_in_turns(plain_bench: Bench) -> None:
    target = Pass(Case(128, heads=6, kv_heads=3), [ranges(90, 3), ranges(5, 1)])
    draft = Pass(Case(64, heads=4, kv_heads=1, page_size=32), [ranges(90, 5, causal=False)])
    placed = target.place_on(plain_bench)
    target.launch(plain_bench, placed)
    target.read(plain_bench, placed)
    before = target.bits

    draft.run(plain_bench)
    target.launch(plain_bench, placed)

    target.read(plain_bench, placed)
    np.testing.assert_array_equal(before, target.bits)
    draft.assert_right()
    target.assert_right()


# ------------------------------------------------------------------------------------- types


@pytest.mark.parametrize("signature", KERNELS.values(), ids=list(KERNELS))
def test_f7_no_kernel_takes_an_array_of_another_type(signature: Signature) -> None:
    numbers = [each for each in signature.parameters if each.shape is None]
    # Enough for whatever the kernel asks for when all its numbers are 1; one size fits all.
    integers = {each.name: 1 for each in numbers if each.dtype not in ("f32", "f64")}
    right: dict[str, Any] = {}
    for each in signature.parameters:
        if each.shape is None:
            right[each.name] = integers.get(each.name, 1.0)
        else:
            size = max(1, each.values_in(integers))
            right[each.name] = DeviceArray(np.zeros(size, STORAGE[each.dtype]), each.dtype)
    check_arguments(signature, list(right.values()), lambda _: 0)

    for each in signature.parameters:
        others = [dtype for dtype in SIZES if dtype != each.dtype and each.shape is not None]
        for dtype in others:
            wrong = DeviceArray(np.zeros(right[each.name].size, STORAGE[dtype]), dtype)
            says = f"argument `{each.name}` of `{signature.name}` is an array of {each.dtype}, not"
            with pytest.raises(LaunchError, match=says):
                check_arguments(signature, list((right | {each.name: wrong}).values()), lambda _: 0)


# ------------------------------------------------------------------- rounds, one behind the other


class Rounds:
    """The bookkeeping of greedy rounds on a device, in one set of arrays for all of them.

    Only `tokens` and `best` are written from outside, as the models would.
    """

    def __init__(self, bench: Bench, requests: int, width: int, pages: int, page_size: int) -> None:
        self.bench, self.requests, self.width = bench, requests, width
        self.pages, self.page_size = pages, page_size
        tables = np.arange(requests * pages).reshape(requests, pages)
        self.scratch = requests * pages * page_size
        self.lengths, self.rows = (
            bench.i32([0] * requests, name) for name in ("lengths", "rows of each")
        )
        self.tokens, self.best = (
            bench.i32(np.zeros((requests, width)), name) for name in ("tokens", "best")
        )
        self.tables = bench.i32(tables, "tables")
        self.at, self.slots, self.out = (
            bench.poison((requests, width), name, "i32") for name in ("at", "slots", "out")
        )
        self.kept = bench.poison((requests,), "kept", "i32")
        for kernel in ("place_rows", "accept_greedy", "commit_round"):
            bench.device.kernel(kernel)

    def launch(self) -> None:
        device, requests, width = self.bench.device, self.requests, self.width
        sizes = requests, width, self.pages, self.page_size, self.scratch
        placed = self.lengths, self.rows, self.tables, self.at, self.slots
        device.kernel("place_rows")(1, 32, (*placed, *sizes))
        accepted = self.tokens, self.best, self.rows, self.out, self.kept
        device.kernel("accept_greedy")(requests, 32, (*accepted, requests, width))
        committed = self.out, self.kept, self.lengths, self.tokens
        device.kernel("commit_round")(1, 32, (*committed, requests, width))

    def write(self, array: DeviceArray, values: Any) -> None:
        self.bench.device.write(array, np.asarray(values, np.int32))

    def guess(self, random: np.random.Generator, rows: list[int]) -> list[list[int]]:
        """Puts drafts and choices there, some of which agree; what each request is to put out."""
        shape = self.requests, self.width
        best, tokens = random.integers(0, 9, (2, *shape))
        tokens[:, 1:] = np.where(random.random(shape) < 0.7, best, tokens)[:, :-1]
        newest = np.array(self.bench.ints(self.tokens))[:, 0]
        tokens[:, 0] = newest
        self.write(self.tokens, tokens)
        self.write(self.best, best)
        self.write(self.rows, rows)
        return [
            accept_greedy(tokens[i, 1:count].tolist(), best[i].tolist()) if count else []
            for i, count in enumerate(rows)
        ]


def test_i9_i10_every_buffer_is_written_anew_in_every_round(bench: Bench) -> None:
    """Three requests that end at different times, in arrays that nobody clears between rounds."""
    rounds, random = Rounds(bench, 3, 6, 8, 4), np.random.default_rng(3)
    lengths = [0, 0, 0]

    for rows in ([6, 6, 6], [6, 2, 6], [3, 0, 6], [0, 0, 1], [6, 0, 0]):
        expected = rounds.guess(random, rows)
        rounds.launch()

        padded = [each + [-1] * (6 - len(each)) for each in expected]
        assert padded == bench.ints(rounds.out)
        assert [len(each) for each in expected] == bench.ints(rounds.kept)
        at, slots = bench.ints(rounds.at), bench.ints(rounds.slots)
        for request, count in enumerate(rows):
            begin = lengths[request]
            assert [*range(begin, begin + count), *[0] * (6 - count)] == at[request]
            base = request * 32
            used = [base + position for position in range(begin, begin + count)]
            unused = [rounds.scratch + request * 6 + index for index in range(count, 6)]
            assert [*used, *unused] == slots[request]
        lengths = [old + len(each) for old, each in zip(lengths, expected, strict=True)]
        assert lengths == bench.ints(rounds.lengths)


def test_l1_l2_a_graph_of_four_serves_fewer_and_four_again(plain_bench: Bench) -> None:
    """Captured for four requests; what is not there has no rows, and leaves no trace."""
    bench, random = plain_bench, np.random.default_rng(4)
    rounds, width = Rounds(bench, 4, 5, 40, 4), 5
    rounds.write(rounds.lengths, [3, 4, 5, 6])
    with bench.device.capture("four requests") as graph:
        rounds.launch()
    lengths = [3, 4, 5, 6]

    for live in (4, 3, 2, 1, 3, 4):
        before = bench.ints(rounds.tokens)
        expected = rounds.guess(random, [width] * live + [0] * (4 - live))
        graph.replay()

        assert [len(each) for each in expected] == bench.ints(rounds.kept)
        lengths = [old + len(each) for old, each in zip(lengths, expected, strict=True)]
        assert lengths == bench.ints(rounds.lengths)
        newest = [row[0] for row in bench.ints(rounds.tokens)]
        ends = [each[-1] if each else row[0] for each, row in zip(expected, before, strict=True)]
        assert ends == newest
        for slots in bench.ints(rounds.slots)[live:]:
            assert all(slot >= rounds.scratch for slot in slots)


def test_l4_five_thousand_rounds_do_not_drift(compiled: Path) -> None:
    bench = Bench(compiled, IN_ORDER, "fast")
    rounds, random = Rounds(bench, 2, 4, 6000, 4), np.random.default_rng(5)
    with bench.device.capture("round") as graph:
        rounds.launch()
    arrays, total = len(bench.driver.memory.buffers), np.zeros(2, int)

    for number in range(5000):
        if number % 50 == 0:
            expected = rounds.guess(random, [4, 3])
            advance = np.array([len(each) for each in expected])
            newest = [each[-1] for each in expected]
        total += advance
        graph.replay()
        if number % 50 in (0, 49):
            assert total.tolist() == bench.ints(rounds.lengths)
            assert newest == [row[0] for row in bench.ints(rounds.tokens)]

    assert len(bench.driver.memory.buffers) == arrays
    assert total.max() > 10_000
