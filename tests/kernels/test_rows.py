"""rows.cu against float64."""

from __future__ import annotations

import numpy as np

from dspark.runtime.backends.reference import ReferenceBackend
from tests.support.kernel_bench import HALF_ULP, Bench, requested, rounded

ENTRIES, WIDTH, BLOCK = 7, 8 * 83, 32
assert WIDTH // 8 > 2 * BLOCK


def table() -> np.ndarray:
    return rounded(np.random.default_rng(3).normal(size=(ENTRIES, WIDTH)))


def test_gather_rows(bench: Bench) -> None:
    ids = [6, 0, 3, 3]
    out = bench.poison((len(ids), WIDTH), "out")

    args = bench.bf16(table(), "table"), bench.i32(ids, "ids"), out, len(ids), ENTRIES, WIDTH
    report = bench.launch("gather_rows", len(ids), BLOCK, *args)

    np.testing.assert_array_equal(bench.floats(out), table()[ids])
    assert 2 * 2 * WIDTH * len(ids) == requested(report) - report.reads["ids"].requested


def test_an_id_that_is_not_there_is_seen(bench: Bench) -> None:
    ids = [-1, 2, ENTRIES, 2**31 - 1]
    out = bench.device.array(np.zeros((len(ids), WIDTH), np.uint16), "bf16", "out")

    args = bench.bf16(table(), "table"), bench.i32(ids, "ids"), out, len(ids), ENTRIES, WIDTH
    bench.launch("gather_rows", len(ids), BLOCK, *args)

    found = bench.floats(out)
    np.testing.assert_array_equal(found[1], table()[2])
    assert np.isnan(found[[0, 2, 3]]).all()


def test_silu_mul(bench: Bench) -> None:
    rows, width = 5, 8 * 13
    gate_up = rounded(np.random.default_rng(4).normal(size=(rows, 2 * width)) * 6)
    gate_up[0, :4] = [-100.0, 100.0, 0.0, -0.0]
    out = bench.poison((rows, width), "out")

    # 65 vectors for 32 threads: three times round, and the last time not all of them.
    args = bench.bf16(gate_up, "gate_up"), out, rows, width
    report = bench.launch("silu_mul", 1, 32, *args)

    expected = ReferenceBackend().swiglu(gate_up)
    np.testing.assert_allclose(bench.floats(out), expected, rtol=1.1 * HALF_ULP, atol=1e-30)
    assert 3 * 2 * rows * width == requested(report)


def test_silu_mul_shares_the_work_between_blocks(bench: Bench) -> None:
    rows, width = 5, 8 * 13
    gate_up = rounded(np.random.default_rng(5).normal(size=(rows, 2 * width)))
    out = bench.poison((rows, width), "out")

    bench.launch("silu_mul", 2, 32, bench.bf16(gate_up, "gate_up"), out, rows, width)

    expected = ReferenceBackend().swiglu(gate_up)
    np.testing.assert_allclose(bench.floats(out), expected, rtol=1.1 * HALF_ULP, atol=1e-30)
