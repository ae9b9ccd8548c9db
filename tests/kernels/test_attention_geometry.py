"""How attention is launched: what fits, what moves, and what a captured graph reads anew."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dspark.kernel_sizes import HEAD_DIMS
from dspark.kernels.attention_geometry import SPLIT, attention_geometry
from dspark.kernels.errors import LaunchError
from dspark.kernels.host.build import environment
from dspark.kernels.host.report import KernelFault, Report, Traffic
from dspark.kernels.signatures import kernels_in
from tests.support.attention_case import Case, Pass, ranges
from tests.support.kernel_bench import Bench

SM_89, SM_90 = 101_376, 232_448
"""Bytes of shared memory that a block may have."""

SIZES: dict[str, int] = {
    "requests": 2,
    "width": 8,
    "heads": 32,
    "kv_heads": 8,
    "head_dim": 128,
    "splits": 16,
    "most_shared": SM_90,
}


def test_there_are_kernels_for_every_size() -> None:
    for name in ("attend", "combine_splits"):
        found = {each for each in kernels_in() if each.startswith(name)}
        assert {f"{name}_{size}" for size in HEAD_DIMS} == found


@pytest.mark.parametrize("most_shared", [SM_89, SM_90])
@pytest.mark.parametrize("head_dim", HEAD_DIMS)
def test_every_shape_fits_everywhere(head_dim: int, most_shared: int) -> None:
    for group in (1, 2, 4, 5, 8):
        for width in (1, 2, 8, 16):
            sizes = {"heads": 8 * group, "width": width, "head_dim": head_dim}
            found = attention_geometry(**SIZES | sizes | {"most_shared": most_shared})

            tiles = -(-width * group // 16)
            assert found.block in (32 * 4 * tiles, 32 * 2 * tiles)
            assert found.block <= 512
            assert (16, 8, 2) == found.grid
            assert found.combine_grid * 8 >= 2 * width * 8 * group > (found.combine_grid - 1) * 8


def test_the_third_stage_goes_first() -> None:
    sizes = SIZES | {"width": 16, "heads": 64}

    assert 3 == attention_geometry(**sizes).stages
    assert 2 == attention_geometry(**sizes | {"most_shared": SM_89}).stages


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"head_dim": 72}, r"attention takes heads of \(64, 80, 96, 128\), not of 72"),
        ({"kv_heads": 5}, "32 query heads do not share 5 key heads evenly"),
        ({"kv_heads": 0}, "32 query heads do not share 0 key heads evenly"),
        ({"heads": 0}, "0 query heads do not share 8 key heads evenly"),
        ({"width": 17}, "up to 128 queries of a key head, not 17 and 68"),
        ({"width": 0}, "attention takes 1 to 16 rows a request .* not 0 and 0"),
        ({"heads": 72, "width": 16}, "not 16 and 144"),
        ({"most_shared": 40_000}, "needs 49152 bytes of shared memory, beyond 40000"),
    ],
)
def test_what_the_kernels_do_not_take(change: dict[str, int], says: str) -> None:
    with pytest.raises(LaunchError, match=says):
        attention_geometry(**SIZES | change)


@pytest.mark.parametrize("most_shared", [SM_90, 50_000])
def test_shared_memory_is_used_to_the_last_byte(most_shared: int, plain_bench: Bench) -> None:
    one = Pass(Case(80, heads=16, most_shared=most_shared), [ranges(150, 5)])
    arrays = one.place_on(plain_bench)
    whole = one.case.geometry(1)

    one.launch(plain_bench, arrays)
    assert (3 if most_shared == SM_90 else 2) == whole.stages
    with pytest.raises(KernelFault, match="out-of-bounds"):
        one.launch(plain_bench, arrays, less=16)


# ------------------------------------------------------------------------------------ what moves


def moved(reports: list[Report]) -> int:
    """Bytes that leave the multiprocessors, of both launches."""
    return sum(
        each.by_block for one in reports for each in (*one.reads.values(), *one.writes.values())
    )


def moving(traffic: Mapping[str, Traffic]) -> set[str]:
    """The arrays that were touched at all."""
    return {name for name, each in traffic.items() if each.requested}


def kept(one: Pass, positions: int) -> int:
    """Bytes of so many positions' keys, or values."""
    return positions * one.case.kv_heads * one.case.size * 2


def test_keys_and_values_are_read_once_for_all_rows(plain_bench: Bench) -> None:
    one = Pass(Case(80, heads=10, split=64), [ranges(126, 5), ranges(60, 2)])

    attended, _ = one.run(plain_bench)

    for name in ("keys", "values"):
        assert kept(one, 131 + 62) == attended.reads[name].requested
        assert kept(one, 131 + 62) == attended.reads[name].by_block


def test_a_window_reads_what_is_in_it(plain_bench: Bench) -> None:
    one = Pass(Case(80), [ranges(150, 3, 40)])

    attended, _ = one.run(plain_bench)

    for name in ("keys", "values"):
        assert kept(one, 42) == attended.reads[name].by_block


def test_a_short_context_needs_no_second_pass(plain_bench: Bench) -> None:
    one = Pass(Case(80), [ranges(59, 5)])

    attended, combined = one.run(plain_bench)

    assert one.q.size * 2 == attended.reads["q"].requested == attended.writes["out"].requested
    assert {"out"} == moving(attended.writes)
    assert {"begins", "ends"} == moving(combined.reads)


def test_a_range_beyond_the_splits_moves_nothing(plain_bench: Bench) -> None:
    class Fewer(Case):
        splits = 2

    one = Pass(Fewer(80, width=1), [[(0, 129)]])
    assert one.case.splits * one.case.split < 129 < one.case.table_pages * one.case.page_size

    attended, _ = one.run(plain_bench)

    assert {"begins", "ends"} == moving(attended.reads)


def test_decoding_moves_little_else(plain_bench: Bench) -> None:
    case = Case(80, heads=8, width=1, page_size=32, split=SPLIT, table_pages=16)
    one = Pass(case, [ranges(511, 1)])

    reports = one.run(plain_bench)

    fewest = 2 * kept(one, 512) + 2 * one.q.size * 2
    assert fewest <= moved(reports) <= 1.05 * fewest


# -------------------------------------------------------------------------------------- a graph


def test_a_graph_follows_lengths_and_tables(plain_bench: Bench) -> None:
    case = Case(80)
    first = Pass(case, [ranges(30, 5), []], names=[1, 2])
    then = Pass(case, [ranges(90, 3), ranges(126, 5)], names=[3, 4])
    eager = Bench(plain_bench.driver.folder, plain_bench.driver.schedule)
    then.run(eager)
    arrays = first.place_on(plain_bench)
    for name in ("attend_80", "combine_splits_80"):
        plain_bench.device.kernel(name)
    with plain_bench.device.capture("pass") as graph:
        first.launch(plain_bench, arrays)

    graph.replay()
    first.read(plain_bench, arrays)
    first.assert_right()
    for name, values in then.content().items():
        plain_bench.device.write(arrays[name], values)
    graph.replay()

    bits = then.bits
    then.read(plain_bench, arrays)
    np.testing.assert_array_equal(then.bits, bits)
    then.assert_right()
    graph.release()


# ------------------------------------------------------------------------------ AddressSanitizer

ASAN = """
import sys
from pathlib import Path
from dspark.kernels.host.simulator import Schedule
from tests.support.attention_case import Case, Pass, ranges
from tests.support.kernel_bench import Bench
for size in (64, 80, 96, 128):
    for seed in (0, 1):
        bench = Bench(Path(sys.argv[1]), Schedule(seed), "asan")
        one = Pass(Case(size, heads=10), [ranges(126, 5, 70, causal=False), ranges(9, 3)])
        arrays = one.place_on(bench)
        one.launch(bench, arrays)
        one.read(bench, arrays)
        one.assert_right()
print("done")
"""


@pytest.mark.slow
def test_address_sanitizer_has_nothing_to_say(compiled: Path, repository: Path) -> None:
    done: Any = subprocess.run(
        [sys.executable, "-c", ASAN, compiled],
        env={**os.environ, **environment("asan"), "PYTHONPATH": str(repository)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert (0, "done\n", "") == (done.returncode, done.stdout, done.stderr)
