"""gemm.cu and gemm_fp8.cu against float64: a ring that turns over, tiles that end early."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from dspark.kernels.gemm_geometry import CHANNEL_BYTES, STAGES
from dspark.kernels.host.build import environment
from dspark.kernels.host.report import KernelFault, Report
from dspark.runtime.backends.reference import ReferenceBackend
from tests.support.gemm_bench import BYTES, Products, integers
from tests.support.kernel_bench import HALF_ULP, Bench, Floats, requested, rounded

KINDS = ("bf16", "fp8")
N = 72
"""Four tiles and a half: blocks of two warps leave one warp without a channel."""

LONG = {"bf16": 1000, "fp8": 1840}
SHORT = {"bf16": 136, "fp8": 272}
for kind, k in LONG.items():
    assert k > STAGES * CHANNEL_BYTES // BYTES[kind]
    assert k % 16 == {"bf16": 8, "fp8": 0}[kind]
    assert k % 32


@pytest.mark.parametrize("rows", [3, 11])
@pytest.mark.parametrize("kind", KINDS)
def test_gemm_f32(bench: Bench, kind: str, rows: int) -> None:
    products = Products(bench, kind)
    x, matrix = integers((rows, LONG[kind]), 1), integers((N, LONG[kind]), 2)

    products.launch("gemm_f32", x, matrix, products.out(rows, N, "f32"))

    # Sums of small integers are exact in any order.
    np.testing.assert_array_equal(products.result(), x @ products.worth.T)


@pytest.mark.parametrize("kind", KINDS)
def test_gemm(bench: Bench, kind: str) -> None:
    products = Products(bench, kind)
    x, matrix = integers((11, SHORT[kind]), 3), integers((N, SHORT[kind]), 4)

    products.launch("gemm", x, matrix, products.out(11, N))

    np.testing.assert_array_equal(products.result(), rounded(x @ products.worth.T))


@pytest.mark.parametrize("kind", KINDS)
def test_numbers_that_round_on_the_way(plain_bench: Bench, kind: str) -> None:
    random = np.random.default_rng(5)
    products, k = Products(plain_bench, kind), LONG[kind]
    x, matrix = rounded(random.normal(size=(16, k))), random.normal(size=(N, k))

    products.launch("gemm_f32", x, matrix, products.out(16, N, "f32"))

    # Each of the sums rounds by 2**-24 of what it has reached, which is below the sum of sizes.
    sizes = np.abs(x) @ np.abs(products.worth).T
    assert (np.abs(products.result() - x @ products.worth.T) < sizes * 2.0**-23 * 8).all()


@pytest.mark.parametrize("kind", KINDS)
def test_gemm_panels(bench: Bench, kind: str) -> None:
    products, panels, width = Products(bench, kind), 3, {"bf16": 56, "fp8": 112}[kind]
    x, matrix = integers((panels, 11, width), 6), integers((N, panels * width), 7)

    products.launch("gemm_panels", x, matrix, products.out(11, N), sizes=(11, N, panels, width))

    joined = np.concatenate(list(x), axis=-1)
    np.testing.assert_array_equal(products.result(), rounded(joined @ products.worth.T))


@pytest.mark.parametrize("kind", KINDS)
def test_gemm_bias(bench: Bench, kind: str) -> None:
    products = Products(bench, kind)
    x, matrix, bias = integers((11, 16), 8), integers((N, 16), 9), integers((N,), 10) * 8.25

    products.launch("gemm_bias", x, matrix, bench.bf16(bias, "bias"), products.out(11, N))

    np.testing.assert_array_equal(products.result(), rounded(x @ products.worth.T + bias))


@pytest.mark.parametrize("in_place", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_gemm_add(bench: Bench, kind: str, in_place: bool) -> None:
    products = Products(bench, kind)
    x, matrix, stream = integers((11, 16), 11), integers((N, 16), 12), integers((11, N), 13) * 8.25
    kept = bench.bf16(stream, "stream")

    out = products.keep(kept) if in_place else products.out(11, N)
    products.launch("gemm_add", x, matrix, kept, out)

    np.testing.assert_array_equal(products.result(), rounded(x @ products.worth.T + stream))
    if not in_place:
        np.testing.assert_array_equal(bench.floats(kept), stream)


@pytest.mark.parametrize("kind", KINDS)
def test_gemm_silu_mul(bench: Bench, kind: str) -> None:
    products = Products(bench, kind)
    x, matrix = integers((11, SHORT[kind]), 14) / 16, integers((2 * N, SHORT[kind]), 15)
    x[0] *= 64  # gates beyond where the exponential overflows

    products.launch("gemm_silu_mul", x, matrix, products.out(11, N), paired=True)

    with np.errstate(over="ignore"):
        expected = ReferenceBackend().swiglu(x @ products.worth.T)
    np.testing.assert_allclose(products.result(), expected, rtol=1.1 * HALF_ULP, atol=1e-30)


# ------------------------------------------------------------------ rows and their company


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_is_the_same_bits_in_any_company(plain_bench: Bench, kind: str) -> None:
    random = np.random.default_rng(16)
    products, k = Products(plain_bench, kind), LONG[kind]
    x, matrix = rounded(random.normal(size=(16, k))), random.normal(size=(40, k))
    products.launch("gemm_f32", x, matrix, products.out(16, 40, "f32"))
    together = products.result()

    for chosen in ([9], [15, 0], list(range(8)), list(range(8, 16)), list(range(15, 6, -1))):
        products.launch("gemm_f32", x[chosen], None, products.out(len(chosen), 40, "f32"))
        np.testing.assert_array_equal(products.result(), together[chosen])


@pytest.mark.parametrize("multiprocessors", [1, 100])
def test_a_row_is_the_same_bits_in_any_geometry(plain_bench: Bench, multiprocessors: int) -> None:
    random = np.random.default_rng(17)
    products, k = Products(plain_bench, "bf16"), SHORT["bf16"]
    x, matrix = rounded(random.normal(size=(3, k))), random.normal(size=(N, k))
    first = products.launch("gemm_f32", x, matrix, products.out(3, N, "f32"))
    expected = products.result()

    products.multiprocessors = multiprocessors
    second = products.launch("gemm_f32", x, None, products.out(3, N, "f32"))

    assert first.reads["x"].requested != second.reads["x"].requested
    np.testing.assert_array_equal(products.result(), expected)


def test_a_nan_stays_in_its_row(plain_bench: Bench) -> None:
    products = Products(plain_bench, "bf16")
    x, matrix = integers((11, 136), 18), integers((N, 136), 19)
    expected = x @ matrix.T
    # The very first value is what a copy of nothing points at.
    x[0, 0], x[4, 100], x[9, 3] = np.nan, np.nan, np.inf

    products.launch("gemm_f32", x, matrix, products.out(11, N, "f32"))

    clean = [row for row in range(11) if row not in (0, 4, 9)]
    np.testing.assert_array_equal(products.result()[clean], expected[clean])
    assert np.isnan(products.result()[[0, 4]]).all()
    assert not np.isfinite(products.result()[9]).any()


def test_a_nan_stays_in_its_channel(plain_bench: Bench) -> None:
    products = Products(plain_bench, "bf16")
    x, matrix = integers((11, 136), 32), integers((N, 136), 33)
    expected = x @ matrix.T
    matrix[0, 0] = matrix[50, 135] = np.nan

    products.launch("gemm_f32", x, matrix, products.out(11, N, "f32"))

    clean = [channel for channel in range(N) if channel not in (0, 50)]
    np.testing.assert_array_equal(products.result()[:, clean], expected[:, clean])
    assert np.isnan(products.result()[:, [0, 50]]).all()


# -------------------------------------------------------------------------------- the best


@pytest.mark.parametrize("kind", KINDS)
def test_the_best_of_a_product_is_that_of_its_logits(bench: Bench, kind: str) -> None:
    random = np.random.default_rng(20)
    x, matrix = rounded(random.normal(size=(11, 48))), random.normal(size=(N, 48))
    products = Products(bench, kind)
    products.launch("gemm_f32", x, matrix, products.out(11, N, "f32"))
    logits = products.result()

    best, top = products.argmax(x, None)

    assert best == logits.argmax(axis=1).tolist()
    np.testing.assert_array_equal(top, logits.max(axis=1))


def with_logits(bench: Bench, logits: Floats) -> tuple[list[int], Floats]:
    """The best of rows whose logits are these [up to 8, N], with 8 as the product's depth."""
    x = np.eye(8)[: len(logits)]
    matrix = np.zeros((N, 8))
    matrix[:, : len(logits)] = logits.T
    return Products(bench, "bf16").argmax(x, matrix)


def test_the_first_of_equals_is_best(plain_bench: Bench) -> None:
    # In one vector, two lanes, two warps, two blocks; all below zero; all of them.
    places = [(17, 19), (20, 27), (5, 16), (30, 33), (68, 71), tuple(range(N))]
    logits = np.full((len(places), N), -9.0)
    for row, equal in enumerate(places):
        logits[row, list(equal)] = -2.0

    best, top = with_logits(plain_bench, logits)

    assert [equal[0] for equal in places] == best
    assert [-2.0] * len(places) == top.tolist()


def test_any_place_can_be_best(plain_bench: Bench) -> None:
    for first in range(0, N, 8):
        logits = np.full((8, N), -3.0)
        logits[range(8), range(first, first + 8)] = -1.0
        best, _ = with_logits(Bench(plain_bench.driver.folder, plain_bench.driver.schedule), logits)
        assert list(range(first, first + 8)) == best


def test_a_row_with_a_nan_has_no_best(plain_bench: Bench) -> None:
    x, matrix = integers((3, 16), 21), integers((N, 16), 22)
    x[1] = np.nan

    best, top = Products(plain_bench, "bf16").argmax(x, matrix)

    logits = x @ matrix.T
    assert [int(logits[0].argmax()), -1, int(logits[2].argmax())] == best
    assert [False, True, False] == np.isnan(top).tolist()


@pytest.mark.parametrize(("first", "second"), [(0, 1), (35, 40), (N - 8, N - 1)])
def test_the_first_nan_among_the_channels_is_seen(
    plain_bench: Bench, first: int, second: int
) -> None:
    matrix = integers((N, 16), 23)
    matrix[[first, second], 2] = np.nan
    products = Products(plain_bench, "bf16")

    best, top = products.argmax(integers((2, 16), 24), matrix)

    assert [-1, -1] == best
    assert np.isnan(top).all()
    assert [True, True] == [first in places for places in products.places]
    assert not any(second in places for places in products.places)


def test_an_infinite_logit_is_no_best(plain_bench: Bench) -> None:
    logits = integers((3, N), 25)
    logits[1, 50], logits[2, :] = 3e38, -3e38
    products = Products(plain_bench, "bf16")
    matrix = np.zeros((N, 16))
    matrix[:, :3], matrix[:, 3:6] = logits.T, logits.T
    x = np.zeros((3, 16))
    x[range(3), range(3)] = x[range(3), range(3, 6)] = 1.0

    best, top = products.argmax(x, matrix)

    assert [int(logits[0].argmax()), -1, -1] == best
    assert [np.inf, -np.inf] == top[1:].tolist()


# ------------------------------------------------------------------------------------- fp8


def test_every_fp8_is_worth_itself_times_its_scale(plain_bench: Bench) -> None:
    codes = np.arange(256, dtype=np.uint8).reshape(16, 16)
    codes[codes % 128 == 127] = 0  # NaN, which a product with zero would spread
    products = Products(plain_bench, "fp8")

    products.launch("gemm_f32", np.eye(16), codes, products.out(16, 16, "f32"))

    np.testing.assert_array_equal(products.result(), products.worth.T)
    assert len(np.unique(np.abs(products.worth / products.scales[:, None]))) == 127


def test_a_nan_of_fp8_is_seen_in_its_channel(plain_bench: Bench) -> None:
    codes = np.full((N, 16), 0x38, np.uint8)
    codes[37, 5], codes[64, 15] = 0x7F, 0xFF
    products = Products(plain_bench, "fp8")

    products.launch("gemm_f32", np.ones((2, 16)), codes, products.out(2, N, "f32"))

    assert [37, 64] == np.flatnonzero(np.isnan(products.result()).any(axis=0)).tolist()


# --------------------------------------------------------------------------- what it costs


@pytest.mark.parametrize(("kind", "rows"), [("bf16", 1), ("bf16", 16), ("fp8", 8)])
def test_each_weight_is_read_once(plain_bench: Bench, kind: str, rows: int) -> None:
    n, k = 128, 4096
    products = Products(plain_bench, kind, multiprocessors=2)
    x, matrix = integers((rows, k), 26), integers((n, k), 27)

    report = products.launch("gemm", x, matrix, products.out(rows, n))

    # Two blocks ask for the rows, which are small and come from the second-level cache but once.
    moved = outside_x(report) + report.reads["x"].once
    fewest = n * k * BYTES[kind] + rows * k * 2 + rows * n * 2
    assert n * k * BYTES[kind] == report.reads["weights"].requested
    assert 2 * rows * k * 2 == report.reads["x"].requested
    assert 1 <= moved / fewest <= 1.01
    if rows == 1:
        assert requested(report) / fewest <= 1.05


def test_the_rest_is_moved_once_too(plain_bench: Bench) -> None:
    rows, n, k = 5, 64, 1024
    products = Products(plain_bench, "bf16", multiprocessors=1)
    x, matrix, more = integers((rows, k), 28), integers((2 * n, k), 29), np.ones((rows, n))
    paired = products.launch("gemm_silu_mul", x, matrix, products.out(rows, n), paired=True)
    stream = plain_bench.bf16(more, "stream")
    added = products.launch("gemm_add", x, matrix[:n], stream, products.keep(stream))

    assert 2 * n * k * 2 + rows * n * 2 == outside_x(paired)
    assert n * k * 2 + 2 * rows * n * 2 == outside_x(added)


def outside_x(report: Report) -> int:
    return requested(report) - report.reads["x"].requested


# -------------------------------------------------------------------------- what is noticed


@pytest.mark.parametrize("kind", KINDS)
def test_too_little_shared_memory_is_found(plain_bench: Bench, kind: str) -> None:
    products = Products(plain_bench, kind)
    x, matrix = integers((3, LONG[kind]), 30), integers((N, LONG[kind]), 31)

    with pytest.raises(KernelFault, match="out-of-bounds"):
        products.launch("gemm", x, matrix, products.out(3, N), less=16)


ASAN = """
import sys
from pathlib import Path
from dspark.kernels.host.simulator import Schedule
from tests.support.gemm_bench import Products, integers
from tests.support.kernel_bench import Bench
for kind, k in (("bf16", 1000), ("fp8", 1840)):
    for seed in (0, 1):
        bench = Bench(Path(sys.argv[1]), Schedule(seed), "asan")
        products = Products(bench, kind)
        x, matrix = integers((11, k), 1), integers((72, k), 2)
        products.launch("gemm_f32", x, matrix, products.out(11, 72, "f32"))
        assert (products.result() == x @ products.worth.T).all()
        products.launch("gemm", x, None, products.out(11, 72))
        products.launch("gemm_panels", x.reshape(5, 11, k // 5), None, products.out(11, 72),
                        sizes=(11, 72, 5, k // 5))
        bias = bench.bf16(integers((72,), 3), "bias")
        products.launch("gemm_bias", x, None, bias, products.out(11, 72))
        stream = bench.bf16(integers((11, 72), 4), "stream")
        products.launch("gemm_add", x, None, stream, products.keep(stream))
        products.argmax(x, None)
        out = products.out(11, 72)
        products.launch("gemm_silu_mul", x, integers((144, k), 5), out, paired=True)
print("done")
"""


@pytest.mark.slow
def test_address_sanitizer_has_nothing_to_say(compiled: Path, repository: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ASAN, compiled],
        env={**os.environ, **environment("asan"), "PYTHONPATH": str(repository)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert (0, "done\n", "") == (done.returncode, done.stdout, done.stderr)
