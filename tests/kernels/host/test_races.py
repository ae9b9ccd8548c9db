"""What orders two accesses, and that nothing else does."""

from __future__ import annotations

import numpy as np
import pytest

from dspark.kernels.host.report import Finding, KernelFault
from dspark.kernels.host.simulator import Schedule
from tests.kernels.host.bench import Bench, line


def outcome(bench: Bench, name: str, schedule: Schedule) -> None:
    bench.run(f"races.by_{name}", {"out": np.zeros(128, np.float32)}, schedule=schedule)
    expected = [lane ^ 1 for lane in range(32)]
    np.testing.assert_array_equal(expected, bench.arrays["out"][:32])


@pytest.mark.parametrize("ordered_by", ["barrier", "warp"])
def test_a_barrier_and_a_warp_barrier_order_memory(
    bench: Bench, schedule: Schedule, ordered_by: str
) -> None:
    outcome(bench, ordered_by, schedule)


@pytest.mark.parametrize("ordered_by", ["nothing", "shuffle", "volatiles"])
def test_what_nothing_orders_is_a_race_in_every_schedule(
    bench: Bench, schedule: Schedule, ordered_by: str
) -> None:
    findings = bench.faults(
        f"races.by_{ordered_by}", {"out": np.zeros(128, np.float32)}, schedule=schedule
    )

    assert {"race"} == {finding.kind for finding in findings}
    text = findings[0].text
    assert "of static shared memory" in text
    assert line("races", "box[i] = static_cast<float>(i)") in text
    assert line("races", "box[i ^ 1];") in text


def test_a_reader_of_the_round_before_races_with_the_next_write(
    bench: Bench, schedule: Schedule
) -> None:
    out = {"out": np.zeros(3 * 64, np.float32)}
    bench.run("races.rounds", out, np.int32(2), block=64, schedule=schedule)
    np.testing.assert_array_equal(np.repeat([0, 1, 2], 64), bench.arrays["out"])

    findings = bench.faults("races.rounds", out, np.int32(1), block=64, schedule=schedule)

    assert {"race"} == {finding.kind for finding in findings}
    assert line("races", "box = static_cast<float>(round)") in findings[0].text
    assert line("races", "round * blockDim.x + threadIdx.x] = box") in findings[0].text


def test_two_writes_of_one_value_are_a_race(bench: Bench) -> None:
    (finding,) = bench.faults("races.both_write", {"out": np.zeros(1, np.float32)})

    assert finding == Finding(
        "race",
        "thread (1,0,0) of block (0,0,0) writes byte 0 of `out` at "
        f"{line('races', 'threadIdx.x < 2')}, and nothing orders that after the write by "
        f"thread (0,0,0) of block (0,0,0) at {line('races', 'threadIdx.x < 2')}",
    )


def test_an_atomic_does_not_hide_the_plain_write_before_it(
    bench: Bench, schedule: Schedule
) -> None:
    counter = {"counter": np.zeros(1, np.uint32)}
    bench.run("races.plain_start", counter, block=32, schedule=schedule)
    assert bench.arrays["counter"] == 32

    findings = bench.faults("races.plain_start", counter, block=64, schedule=schedule)

    assert {"race"} == {finding.kind for finding in findings}


def test_bytes_side_by_side_do_not_race(bench: Bench, schedule: Schedule) -> None:
    bench.run("races.neighbours", {"out": np.zeros(64, np.uint8)}, block=64, schedule=schedule)

    np.testing.assert_array_equal(range(64), bench.arrays["out"])


def test_no_barrier_reaches_another_block(bench: Bench, schedule: Schedule) -> None:
    findings = bench.faults(
        "races.between_blocks",
        {"out": np.zeros(3, np.float32)},
        grid=2,
        block=1,
        schedule=schedule,
    )

    assert [finding.kind for finding in findings] == ["race"]
    assert "block (0,0,0)" in findings[0].text
    assert "block (1,0,0)" in findings[0].text


def arrivals() -> dict[str, np.ndarray]:
    return {
        "parts": np.zeros(4 * 32, np.float32),
        "arrived": np.zeros(1, np.uint32),
        "sum": np.zeros(1, np.float32),
    }


def test_the_last_block_may_read_what_all_have_released(bench: Bench, schedule: Schedule) -> None:
    bench.run("races.last_good", arrivals(), grid=4, schedule=schedule)

    expected = sum(thread + block for thread in range(32) for block in range(4))
    assert bench.arrays["sum"] == expected
    assert bench.arrays["arrived"] == 0


@pytest.mark.parametrize(
    "mistake", ["no_fence", "block_fence", "no_second_fence", "plain", "early_fence"]
)
def test_the_last_block_needs_both_fences_and_an_atomic(
    bench: Bench, schedule: Schedule, mistake: str
) -> None:
    findings = bench.faults(f"races.last_{mistake}", arrivals(), grid=4, schedule=schedule)

    assert {"race"} == {finding.kind for finding in findings}
    buffer = "`arrived`" if mistake == "plain" else "`parts`"
    assert any(buffer in finding.text for finding in findings)


def exchanged(bench: Bench, name: str, seed: int) -> None:
    bench.run(
        f"races.exchange_{name}",
        {
            "values": np.zeros(3, np.float32),
            "out": np.zeros(3, np.float32),
            "arrived": np.zeros(1, np.uint32),
        },
        grid=3,
        block=33,
        schedule=Schedule(seed, resident=0),
    )


@pytest.mark.parametrize("seed", range(5))
def test_blocks_meet_by_release_and_acquire(bench: Bench, seed: int) -> None:
    exchanged(bench, "good", seed)

    np.testing.assert_array_equal([1, 2, 0], bench.arrays["out"])


@pytest.mark.parametrize("side", ["relaxed_arrival", "relaxed_wait"])
@pytest.mark.parametrize("seed", range(3))
def test_either_side_relaxed_orders_nothing(bench: Bench, side: str, seed: int) -> None:
    with pytest.raises(KernelFault, match=r"race: .*of `values`"):
        exchanged(bench, side, seed)


def scoped(bench: Bench, reader: int, seed: int) -> None:
    bench.run(
        "races.block_scope",
        {"data": np.zeros(1, "f4"), "flag": np.zeros(1, "u4"), "out": np.zeros(1, "f4")},
        np.int32(reader),
        grid=2,
        schedule=Schedule(seed, resident=0),
    )


@pytest.mark.parametrize("seed", range(4))
def test_a_fence_for_the_block_orders_inside_it(bench: Bench, seed: int) -> None:
    scoped(bench, 0, seed)

    assert bench.arrays["out"] == 1


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("reader", [1, 2, 3], ids=["fences", "acquires", "behind-another"])
def test_a_fence_for_the_block_orders_nothing_outside_it(
    bench: Bench, reader: int, seed: int
) -> None:
    with pytest.raises(KernelFault, match=r"race: .*of `data`"):
        scoped(bench, reader, seed)


def test_only_a_read_modify_write_hands_on_what_was_released(
    bench: Bench, schedule: Schedule
) -> None:
    arrays = {"data": np.zeros(1, "f4"), "flag": np.zeros(1, "u4"), "out": np.zeros(1, "f4")}
    bench.run("races.release_sequence", arrays, np.int32(0), block=3, schedule=schedule)
    assert bench.arrays["out"] == 1

    (finding,) = bench.faults(
        "races.release_sequence", arrays, np.int32(1), block=3, schedule=schedule
    )

    assert finding.kind == "race"
    assert "of `data`" in finding.text
