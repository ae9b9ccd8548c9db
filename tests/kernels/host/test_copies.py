"""Copies land when they are waited for, and not before."""

from __future__ import annotations

import numpy as np
import pytest

from dspark.kernels.host.simulator import Schedule
from tests.kernels.host.bench import Array, Bench, line

TILES = 5


def tiles() -> dict[str, Array]:
    values = np.arange(TILES * 128, dtype=np.float32).reshape(TILES, 128)
    return {"in": values, "out": np.zeros_like(values)}


@pytest.mark.parametrize("mode", ["checked", "fast"])
def test_a_pipeline_of_copies_brings_every_tile(
    bench: Bench, schedule: Schedule, mode: str
) -> None:
    bench.run("copies.pipeline_good", tiles(), np.int32(TILES), schedule=schedule, mode=mode)

    np.testing.assert_array_equal(tiles()["in"][:, ::-1], bench.arrays["out"])


def test_a_group_that_is_not_waited_for_is_still_under_way(
    bench: Bench, schedule: Schedule
) -> None:
    findings = bench.faults(
        "copies.pipeline_waits_too_little", tiles(), np.int32(TILES), schedule=schedule
    )

    assert {"unwaited-copy"} == {finding.kind for finding in findings}
    assert line("copies", "stages[tile % 2][127 - j]") in findings[0].text


def test_without_checks_such_a_tile_is_nan(bench: Bench) -> None:
    # The pipeline ends with a copy under way, which needs no checks to be seen; the tile was read
    # before.
    (finding,) = bench.faults(
        "copies.pipeline_waits_too_little", tiles(), np.int32(TILES), mode="fast"
    )

    assert "ends without waiting for its cp.async copies" in finding.text

    assert np.isnan(bench.arrays["out"][0]).all()


def test_waiting_does_not_show_other_threads_the_copy(bench: Bench, schedule: Schedule) -> None:
    findings = bench.faults(
        "copies.pipeline_no_barrier", tiles(), np.int32(TILES), schedule=schedule
    )

    assert {"race", "unwaited-copy"} >= {finding.kind for finding in findings}
    assert findings


def small() -> dict[str, Array]:
    return {"in": np.arange(2, 6, dtype=np.float32), "out": np.zeros(4, np.float32)}


def test_what_lay_at_the_destination_is_gone_at_once(bench: Bench) -> None:
    bench.run("copies.reads_too_early", small(), block=1, mode="fast")
    assert np.isnan(bench.arrays["out"]).all()

    (finding,) = bench.faults("copies.reads_too_early", small(), block=1)

    assert finding.kind == "unwaited-copy"
    assert "of static shared memory, to which a copy is still under way" in finding.text
    assert line("copies", "j < 4; j++) out[j] = box[j];") in finding.text


def test_a_barrier_before_the_wait_does_not_show_the_copy(bench: Bench) -> None:
    (finding,) = bench.faults("copies.waits_behind_the_barrier", small(), block=2)

    assert bench.arrays["out"][0] == 2  # the number is right, in this schedule
    assert finding.kind == "race"
    assert line("copies", "if (threadIdx.x == 1) copy_async_16(box, in);") in finding.text


@pytest.mark.parametrize("valid", [16, 12, 4, 0])
def test_what_is_not_valid_is_zero(bench: Bench, valid: int) -> None:
    values = np.arange(1, 5, dtype=np.float32)

    report = bench.run(
        "copies.sizes",
        {"in": values, "out": np.full(6, -1, np.float32)},
        np.int32(valid),
        block=1,
    )

    expected = np.where(np.arange(4) < valid // 4, values, 0)
    np.testing.assert_array_equal([*expected, 2, 2], bench.arrays["out"])
    assert report.reads["in"].requested == valid + 8 + 4


def test_a_thread_may_not_end_with_a_copy_under_way(bench: Bench) -> None:
    (finding,) = bench.faults(
        "copies.never_waits", {"in": np.zeros(4, "f4"), "out": np.zeros(1, "f4")}, block=1
    )

    assert finding.kind == "unwaited-copy"
    assert "ends without waiting for its cp.async copies" in finding.text


@pytest.mark.parametrize(
    ("source", "target", "kind", "words"),
    [
        (1, 0, "misaligned", "gives cp.async addresses that are not aligned to 16 bytes"),
        (0, 1, "misaligned", "gives cp.async addresses that are not aligned to 16 bytes"),
        (8, 0, "out-of-bounds", "reads 16 bytes at byte 32 of `in`, which has 32"),
        (0, 8, "out-of-bounds", "lets cp.async write 16 bytes at byte 32 of dynamic shared memory"),
    ],
)
def test_copies_have_bounds_and_alignment(
    bench: Bench, source: int, target: int, kind: str, words: str
) -> None:
    (finding,) = bench.faults(
        "copies.misplaced",
        {"in": np.zeros(8, "f4"), "out": np.zeros(1, "f4")},
        np.int32(source),
        np.int32(target),
        block=1,
        shared=32,
    )

    assert finding.kind == kind
    assert words in finding.text
    assert line("copies", "copy_async_16(box + to, in + from)") in finding.text


ROWS = 7


def rows() -> dict[str, Array]:
    values = np.random.default_rng(7).standard_normal((ROWS, 64)).astype(np.float32)
    return {"in": values, "out": np.zeros_like(values)}


RING = {"block": 96, "shared": 2 * 64 * 4}


@pytest.mark.parametrize("mode", ["checked", "fast"])
def test_a_ring_of_bulk_copies_brings_every_row(
    bench: Bench, schedule: Schedule, mode: str
) -> None:
    bench.run("copies.ring_good", rows(), np.int32(ROWS), schedule=schedule, mode=mode, **RING)

    np.testing.assert_array_equal(2 * rows()["in"][:, ::-1], bench.arrays["out"])


@pytest.mark.parametrize(
    ("mistake", "kinds", "words"),
    [
        ("no_full_wait", {"race", "unwaited-copy", "deadlock"}, "stages[s * kRow"),
        ("no_empty_wait", {"race", "unwaited-copy", "mbarrier"}, None),
        ("wrong_parity", {"race", "unwaited-copy", "mbarrier", "deadlock"}, None),
        ("no_fence", {"mbarrier"}, "no fence_mbarrier_init made known"),
        ("small_expect", {"mbarrier"}, "bytes more than its mbarrier expects"),
        ("large_expect", {"deadlock"}, "256 bytes missing"),
        ("no_arrive", {"deadlock"}, "an mbarrier at byte"),
        ("extra_arrive", {"mbarrier"}, None),
        ("no_init", {"mbarrier"}, "that was not initialised"),
        ("no_barrier", {"race", "mbarrier"}, None),
        ("no_syncwarp", {"race", "unwaited-copy"}, None),
    ],
)
def test_every_mistake_with_a_ring_is_found_in_every_schedule(
    bench: Bench, schedule: Schedule, mistake: str, kinds: set[str], words: str | None
) -> None:
    findings = bench.faults(
        f"copies.ring_{mistake}", rows(), np.int32(ROWS), schedule=schedule, **RING
    )

    assert kinds >= {finding.kind for finding in findings}
    if words == "stages[s * kRow":
        words = line("copies", "2.0f * stages[s * kRow")
    if words is not None:
        assert words in findings[0].text


@pytest.mark.parametrize(
    ("size", "kind", "words"),
    [
        (64, "unwaited-copy", "block (0,0,0) ends while the bulk copy issued at copies.cu:"),
        (24, "misaligned", "gives cp.async.bulk 24 bytes, no multiple of 16"),
        (80, "out-of-bounds", "lets cp.async.bulk write 80 bytes at byte 0 of dynamic shared"),
    ],
)
def test_a_bulk_copy_has_rules_of_its_own(bench: Bench, size: int, kind: str, words: str) -> None:
    (finding,) = bench.faults(
        "copies.bulk_never_waits",
        {"in": np.zeros(32, "f4"), "out": np.zeros(1, "f4")},
        np.int32(size),
        block=1,
        shared=64,
    )

    assert kind == finding.kind
    assert words in finding.text


def test_a_copy_that_landed_unseen_is_not_ordered_before_the_next(bench: Bench) -> None:
    arrays = {"in": np.arange(8, dtype=np.float32), "out": np.zeros(1, np.float32)}
    bench.run("copies.bulk_twice", arrays, np.int32(1), block=1, shared=16)
    assert bench.arrays["out"] == 4

    (finding,) = bench.faults("copies.bulk_twice", arrays, np.int32(0), block=1, shared=16)

    assert finding.kind == "race"
    assert finding.text.startswith("a bulk copy writes byte 0 of dynamic shared memory at ")
    assert "after the write by the copy engine at " in finding.text
