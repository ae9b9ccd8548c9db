"""How a product is launched: shapes of Qwen3-8B on devices of two sizes, and what is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dspark.kernels.errors import LaunchError
from dspark.kernels.gemm_geometry import MOST_ROWS, Geometry, geometry

H200 = {"multiprocessors": 132, "most_shared": 227 * 1024}
L40 = {"multiprocessors": 142, "most_shared": 99 * 1024}


@pytest.mark.parametrize(
    ("n", "k", "paired", "grid", "warps"),
    [
        (6144, 4096, False, 128, 3),
        (4096, 4096, False, 128, 2),
        (12288, 4096, True, 384, 4),
        (151936, 4096, False, 2374, 4),
        (1024, 2048, False, 64, 1),
    ],
)
def test_a_matrix_is_spread_over_the_device(
    n: int, k: int, paired: bool, grid: int, warps: int
) -> None:
    found = geometry(8, n, k, weight_bytes=2, paired=paired, **H200)

    assert Geometry(grid, 32 * warps, 6 * (warps * 4096 + 8 * 256)) == found


def test_a_small_device_gets_smaller_blocks() -> None:
    assert Geometry(3166, 96, 6 * (3 * 4096 + 8 * 256)) == geometry(
        8, 151936, 4096, weight_bytes=2, **L40
    )


@pytest.mark.parametrize(("k", "stages"), [(8, 1), (128, 1), (136, 2), (768, 6), (776, 6)])
def test_a_shallow_product_needs_fewer_stages(k: int, stages: int) -> None:
    assert stages * (4096 + 3 * 256) == geometry(3, 16, k, weight_bytes=2, **H200).smem


def test_fp8_has_twice_the_depth_in_a_stage() -> None:
    assert Geometry(1, 32, 2 * (4096 + 3 * 512)) == geometry(3, 16, 272, weight_bytes=1, **H200)


@given(
    st.integers(1, MOST_ROWS),
    st.integers(1, 30000),
    st.integers(1, 2000),
    st.sampled_from([1, 2]),
    st.booleans(),
    st.sampled_from([H200, L40]),
)
def test_every_channel_has_its_warp_and_no_block_has_none(
    rows: int,
    eighths: int,
    sixteenths: int,
    weight_bytes: int,
    paired: bool,
    device: dict[str, int],
) -> None:
    n = 8 * eighths
    found = geometry(rows, n, 16 * sixteenths, weight_bytes=weight_bytes, paired=paired, **device)

    channels = found.block // 32 * (8 if paired else 16)
    assert (found.grid - 1) * channels < n <= found.grid * channels
    assert found.block in (32, 64, 96, 128)
    assert found.smem <= device["most_shared"]


@pytest.mark.parametrize("rows", [0, 17])
def test_other_numbers_of_rows_are_refused(rows: int) -> None:
    with pytest.raises(LaunchError, match=f"a product takes 1 to 16 rows, not {rows}"):
        geometry(rows, 16, 16, weight_bytes=2, **H200)


@pytest.mark.parametrize(
    ("n", "k", "weight_bytes", "step"),
    [(12, 16, 2, 8), (0, 16, 2, 8), (16, 12, 2, 8), (16, 0, 2, 8), (16, 24, 1, 16)],
)
def test_sizes_between_vectors_are_refused(n: int, k: int, weight_bytes: int, step: int) -> None:
    with pytest.raises(
        LaunchError,
        match=rf"weights of {weight_bytes} bytes are \[a multiple of 8, a multiple of {step}\],"
        rf" not \[{n}, {k}\]",
    ):
        geometry(3, n, k, weight_bytes=weight_bytes, **H200)


def test_a_device_without_the_memory_is_told() -> None:
    with pytest.raises(
        LaunchError, match="16 rows needs 73728 bytes of shared memory, beyond 49152"
    ):
        geometry(16, 16, 8192, weight_bytes=1, multiprocessors=1, most_shared=48 * 1024)
