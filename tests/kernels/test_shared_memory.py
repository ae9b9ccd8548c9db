"""What a width asks of shared memory, and what of it a GPU has room for."""

from __future__ import annotations

import json
from itertools import product

import pytest

from dspark.contract_reader import load_contract
from dspark.kernel_sizes import HEAD_DIMS, MOST_QUERIES
from dspark.kernels.attention_geometry import attention_geometry
from dspark.kernels.shared_memory import (
    highest_rank,
    norm_bytes,
    step_bytes,
    step_requests,
    widest_norm,
)
from dspark.kernels.signatures import FOLDER

SM_80, SM_89, SM_90 = 166_912, 101_376, 232_448
"""Bytes of shared memory that a block may have: the least is that of SM_89."""

EVERY = range(SM_89, SM_90 + 1, 16)

PRODUCTS = "gemm", "gemm_f32", "gemm_bias", "gemm_add"

RESERVED = 1024
"""What compiled code from 9.0 on says beside its own bytes, and a GPU does not count against it."""


def own(kernel: str) -> int:
    """The most bytes that the kernel declares itself, by its machine code."""
    budget = json.loads((FOLDER / "budget.json").read_text(encoding="utf-8"))
    return max(
        cost["shared_bytes"] - RESERVED * (int(name.removeprefix("sm_")) >= 90)
        for name, cost in budget["kernels"][kernel].items()
    )


@pytest.mark.parametrize("kernel", ["rms_norm", "add_rms_norm"])
def test_the_widest_norm_is_the_last_that_fits(kernel: str) -> None:
    declared = own(kernel)
    assert declared > 0

    for most_shared in EVERY:
        widest = widest_norm(most_shared)

        assert norm_bytes(widest) + declared <= most_shared
        assert norm_bytes(widest + 8) + declared > most_shared


@pytest.mark.parametrize("requests", [8, 16])
def test_the_highest_rank_is_the_last_that_fits(requests: int) -> None:
    declared = own(f"markov_step_{requests}")
    assert declared > 0

    for most_shared in EVERY:
        highest = highest_rank(most_shared, requests)

        assert step_bytes(highest, requests) + declared <= most_shared
        assert step_bytes(highest + 8, requests) + declared > most_shared


def test_only_the_smallest_is_too_small_for_what_a_lane_takes() -> None:
    """As docs/generating.md has it."""
    ranges = {
        key: load_contract("qwen3-dspark").keys[key].range for key in ("hidden_size", "markov_rank")
    }
    assert {"hidden_size": (8, 65536), "markov_rank": (1, 4096)} == ranges

    for most_shared, fits in ((SM_89, False), (SM_80, True), (SM_90, True)):
        assert fits == (widest_norm(most_shared) >= 65536)
        assert fits == (highest_rank(most_shared, 16) >= 4096)
        assert highest_rank(most_shared, 8) >= 4096
    assert (50624, 3072) == (widest_norm(SM_89), highest_rank(SM_89, 16))


def test_a_gpu_counts_what_a_kernel_declares() -> None:
    # 396 vectors for each of 16 requests are 99 KB to the byte, and with what is declared too many.
    assert SM_89 == step_bytes(3136, 16)
    assert highest_rank(SM_89, 16) < 3136


@pytest.mark.parametrize(("count", "expected"), [(1, 8), (8, 8), (9, 16), (16, 16)])
def test_a_step_has_room_for_its_requests(count: int, expected: int) -> None:
    assert expected == step_requests(count)


@pytest.mark.parametrize("most_shared", [SM_80, SM_89, SM_90])
def test_attention_has_room_for_what_it_declares(most_shared: int) -> None:
    for head_dim, queries in product(HEAD_DIMS, range(1, MOST_QUERIES + 1)):
        found = attention_geometry(
            requests=1,
            width=1,
            heads=queries,
            kv_heads=1,
            head_dim=head_dim,
            splits=1,
            most_shared=most_shared,
        )
        assert found.smem + own(f"attend_{head_dim}") <= most_shared


def test_products_declare_nothing() -> None:
    for kernel in (*PRODUCTS, "gemm_panels", "gemm_silu_mul", "gemm_argmax"):
        assert 0 == own(kernel)
