from __future__ import annotations

import os
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dspark.budget import (
    Budget,
    Stored,
    budget,
    parse_size,
    physical_memory,
    shown_size,
    stored,
    stored_by_config,
)
from dspark.headers import TensorInfo

DRAFT = {
    "num_hidden_layers": 5,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 151936,
}
TARGET = {**DRAFT, "num_hidden_layers": 36}


def info(shape: tuple[int, ...], dtype: str) -> TensorInfo:
    bits = {"BF16": 16, "F32": 32, "I64": 64}[dtype]
    return TensorInfo("x", dtype, shape, "f", 8, 8 + prod(shape) * bits // 8)


def official(**changes: int) -> Budget:
    sizes = {"drafts": 7, "draft_positions": 1000, "max_seq": 1000, "batch": 1, **changes}
    return budget(
        DRAFT, TARGET, draft_stored=Stored(100, 2), target_stored=Stored(1000, 2), **sizes
    )


def test_a_token_of_the_official_pair() -> None:
    found = official()

    assert 5 * 2 * 8 * 128 * 2 == 20 * 1024 == found.draft_kv_per_token
    assert 36 * 2 * 8 * 128 * 2 == 144 * 1024 == found.target_kv_per_token


def test_logits_and_their_workspace_are_for_a_round_of_every_row() -> None:
    assert 8 * 151936 * 4 * 2 == official().logits
    assert 3 * 5 * 151936 * 4 * 2 == official(batch=3, drafts=4).logits


def test_caches_are_for_every_row_and_as_far_as_each_model_goes() -> None:
    found = official(batch=3, max_seq=1000, draft_positions=600)

    assert 3 * 600 * 20 * 1024 == found.draft_kv
    assert 3 * 1000 * 144 * 1024 == found.target_kv
    assert 1100 + found.draft_kv + found.target_kv + found.logits == found.total


def test_a_wider_format_is_cached_wider() -> None:
    found = budget(
        DRAFT,
        TARGET,
        draft_stored=Stored(0, 4),
        target_stored=Stored(0, 2),
        drafts=7,
        draft_positions=1,
        max_seq=1,
        batch=1,
    )

    assert (40 * 1024, 144 * 1024) == (found.draft_kv, found.target_kv)


@given(
    memory=st.integers(0, 10**10),
    batch=st.integers(1, 4),
    max_seq=st.integers(1, 50_000),
    positions=st.integers(1, 60_000),
)
def test_the_longest_length_fits_and_the_next_does_not(
    memory: int, batch: int, max_seq: int, positions: int
) -> None:
    def at(length: int) -> Budget:
        return official(batch=batch, max_seq=length, draft_positions=min(length, positions))

    asked = at(max_seq)
    longest = asked.longest_within(memory)

    if asked.total <= memory:
        assert longest >= max_seq
        return
    assert longest < max_seq
    assert longest == 0 or at(longest).total <= memory
    assert at(longest + 1).total > memory


def test_a_length_beyond_the_drafts_positions_costs_the_target_alone() -> None:
    asked = official(max_seq=1000, draft_positions=100)
    half = asked.total - 400 * asked.target_kv_per_token

    assert 600 == asked.longest_within(half)
    assert 599 == asked.longest_within(half - 1)


def test_no_length_is_none_and_not_less() -> None:
    assert 0 == official().longest_within(0)


def test_a_gpu_keeps_the_format_of_the_file() -> None:
    both = [info((10, 10), "BF16"), info((3,), "F32"), info((8,), "I64")]

    assert Stored(200 + 12 + 64, 2) == stored(both, "cuda")
    assert Stored(40, 4) == stored([info((10,), "F32")], "cuda")


def test_a_cpu_widens_to_float32() -> None:
    both = [info((10, 10), "BF16"), info((3,), "F32"), info((8,), "I64")]

    assert Stored(400 + 12 + 64, 4) == stored(both, "cpu")


@pytest.mark.parametrize(
    ("config", "device", "expected"),
    [
        ({"dtype": "bfloat16"}, "cuda", Stored(12, 2)),
        ({"torch_dtype": "bfloat16"}, "cuda", Stored(12, 2)),
        ({"dtype": "float32"}, "cuda", Stored(24, 4)),
        ({"torch_dtype": "bfloat16"}, "cpu", Stored(24, 4)),
        # Nothing says so: what fits by the greatest size fits.
        ({}, "cuda", Stored(24, 4)),
        ({"dtype": 16}, "cuda", Stored(24, 4)),
        ({"dtype": "auto"}, "cuda", Stored(24, 4)),
    ],
)
def test_weights_that_are_not_there_are_sized_by_the_config(
    config: dict[str, object], device: str, expected: Stored
) -> None:
    assert expected == stored_by_config([(2, 2), (2,)], config, device)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1", 1),
        ("25769803776", 24 * 2**30),
        ("24GiB", 24 * 2**30),
        ("24 GiB", 24 * 2**30),
        ("24gib", 24 * 2**30),
        ("24G", 24 * 10**9),
        ("24GB", 24 * 10**9),
        ("1.5TiB", 3 * 2**39),
        ("0.5 KiB", 512),
        ("80Gi", 80 * 2**30),
        ("12B", 12),
    ],
)
def test_sizes_as_people_write_them(text: str, size: int) -> None:
    assert size == parse_size(text)


@pytest.mark.parametrize(
    "text",
    ["", "GiB", "-1", "1e9", "24 PiB", "24GiBs", "1,5GiB", "0x10", "1.GiB", "\u0661GiB", "inf"],
)
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(ValueError, match="a size is a number of bytes"):
        parse_size(text)


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.00 KiB"),
        (3 * 2**29, "1.50 GiB"),
        (2**41, "2.00 TiB"),
    ],
)
def test_sizes_as_people_read_them(count: int, text: str) -> None:
    assert text == shown_size(count)


def test_physical_memory_is_this_machines() -> None:
    assert 2**28 < physical_memory()
    assert 0 == physical_memory() % os.sysconf("SC_PAGE_SIZE")
