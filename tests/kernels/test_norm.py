"""norm.cu against float64: several warps, loops that run twice and end in the middle."""

from __future__ import annotations

import numpy as np
import pytest

from dspark.kernels.host.report import KernelFault
from dspark.runtime.backends.reference import ReferenceBackend
from tests.support.kernel_bench import HALF_ULP, Bench, Floats, requested, rounded

ROWS, WIDTH, BLOCK, EPS = 3, 1208, 64, 1e-5
assert WIDTH // 8 > 2 * BLOCK
assert WIDTH // 8 % BLOCK


def inputs(seed: int = 0) -> tuple[Floats, Floats, Floats]:
    """x, the stream and the weights; rows of very different sizes."""
    random = np.random.default_rng(seed)
    scale = np.array([[1e-3], [1.0], [300.0]])
    x, stream = random.normal(size=(2, ROWS, WIDTH)) * scale
    return rounded(x), rounded(stream), rounded(random.normal(1.0, 0.3, WIDTH))


def reference(x: Floats, weight: Floats) -> Floats:
    normed: Floats = ReferenceBackend().rms_norm(x, weight, EPS)
    return normed


def test_rms_norm(bench: Bench) -> None:
    x, _, weight = inputs()
    out = bench.poison((ROWS, WIDTH), "out")

    args = bench.bf16(x, "x"), bench.bf16(weight, "weight"), out, ROWS, WIDTH, EPS
    bench.launch("rms_norm", ROWS, BLOCK, *args, smem=2 * WIDTH)

    # Rounded twice: the quotient, and its product with the weight.
    np.testing.assert_allclose(bench.floats(out), reference(x, weight), rtol=2.1 * HALF_ULP)


def test_the_quotient_is_rounded_before_it_is_scaled(plain_bench: Bench) -> None:
    x, _, weight = inputs()
    out = plain_bench.poison((ROWS, WIDTH), "out")

    args = plain_bench.bf16(x, "x"), plain_bench.bf16(weight, "weight"), out, ROWS, WIDTH, EPS
    plain_bench.launch("rms_norm", ROWS, BLOCK, *args, smem=2 * WIDTH)

    twice = rounded(rounded(reference(x, np.ones(WIDTH))) * weight)
    once = rounded(reference(x, weight))
    same = np.mean(plain_bench.floats(out) == twice)
    # A float32 sum puts a few quotients on the other side of a tie.
    assert same > 0.99 > np.mean(once == twice)


def test_add_rms_norm(bench: Bench) -> None:
    x, stream, weight = inputs()
    summed = rounded(x + stream)
    kept, out = bench.bf16(stream, "stream"), bench.poison((ROWS, WIDTH), "out")

    args = bench.bf16(x, "x"), kept, bench.bf16(weight, "weight"), out, ROWS, WIDTH, EPS
    bench.launch("add_rms_norm", ROWS, BLOCK, *args, smem=2 * WIDTH)

    np.testing.assert_array_equal(bench.floats(kept), summed)
    # What is normed is the sum as the stream holds it.
    np.testing.assert_allclose(bench.floats(out), reference(summed, weight), rtol=2.1 * HALF_ULP)


def test_the_scale_is_that_of_the_rounded_sum(plain_bench: Bench) -> None:
    # 1.0029 rounds to 1; its own root mean square would scale 1 down to 0.996.
    stream, x = np.ones((1, WIDTH)), np.full((1, WIDTH), 0.75 * 2.0**-8)
    kept, out = plain_bench.bf16(stream, "stream"), plain_bench.poison((1, WIDTH), "out")

    args = plain_bench.bf16(x, "x"), kept, plain_bench.bf16(stream[0], "weight"), out
    plain_bench.launch("add_rms_norm", 1, BLOCK, *args, 1, WIDTH, 1e-12, smem=2 * WIDTH)

    np.testing.assert_array_equal(plain_bench.floats(out), 1.0)


def test_a_row_moves_once(plain_bench: Bench) -> None:
    x, stream, weight = inputs()
    out = plain_bench.poison((1, WIDTH), "out")
    kept, weights = plain_bench.bf16(stream[:1], "stream"), plain_bench.bf16(weight, "weight")

    args = plain_bench.bf16(x[:1], "x"), weights, out, 1, WIDTH, EPS
    alone = plain_bench.launch("rms_norm", 1, BLOCK, *args, smem=2 * WIDTH)
    args = args[0], kept, weights, out, 1, WIDTH, EPS
    added = plain_bench.launch("add_rms_norm", 1, BLOCK, *args, smem=2 * WIDTH)

    # x and weight in, out out; with the stream in and out besides.
    assert 3 * WIDTH * 2 == requested(alone)
    assert 5 * WIDTH * 2 == requested(added)


def test_a_nan_stays_in_its_row(plain_bench: Bench) -> None:
    x, _, weight = inputs()
    x[1, 1000] = np.nan
    out = plain_bench.poison((ROWS, WIDTH), "out")

    args = plain_bench.bf16(x, "x"), plain_bench.bf16(weight, "weight"), out, ROWS, WIDTH, EPS
    plain_bench.launch("rms_norm", ROWS, BLOCK, *args, smem=2 * WIDTH)

    assert [False, True, False] == np.isnan(plain_bench.floats(out)).any(axis=1).tolist()


def test_too_little_shared_memory_is_found(plain_bench: Bench) -> None:
    x, _, weight = inputs()
    out = plain_bench.poison((ROWS, WIDTH), "out")
    args = plain_bench.bf16(x, "x"), plain_bench.bf16(weight, "weight"), out, ROWS, WIDTH, EPS

    with pytest.raises(KernelFault, match="out-of-bounds"):
        plain_bench.launch("rms_norm", ROWS, BLOCK, *args, smem=2 * WIDTH - 16)
