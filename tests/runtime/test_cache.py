"""Pages: none lost, none shared too far, and what was rolled back is overwritten."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dspark.runtime.cache import PagePool, PageTable, kv_bytes_per_token
from tests.runtime.tiny import DRAFT, TARGET


def opened(pool: PagePool, tokens: list[int], positions: int, kind: str = "drafting") -> PageTable:
    table = pool.open(tokens, positions, kind)
    assert table is not None
    return table


def test_m1_bytes_per_token_of_the_published_draft() -> None:
    eight_b = dataclasses.replace(
        DRAFT,
        num_hidden_layers=5,
        layer_types=("full_attention",) * 5,
        num_attention_heads=32,
        num_key_value_heads=8,
        head_dim=128,
    )
    assert 20 * 1024 == kv_bytes_per_token(eight_b, 2)
    assert 3 * 2 * 2 * 12 * 4 == kv_bytes_per_token(TARGET, 4)


def test_a_request_gets_the_pages_it_may_need_or_none() -> None:
    pool = PagePool(4, 8)
    table = opened(pool, [1], 17)
    assert 3 == len(table.pages)
    assert 1 == pool.available
    assert pool.open([1], 9, "drafting") is None
    assert 1 == pool.available
    pool.close(table)
    assert 4 == pool.available


def test_a_known_prefix_is_shared_page_by_page() -> None:
    pool = PagePool(8, 4)
    tokens = list(range(10, 21))
    first = opened(pool, tokens, 16)
    assert 0 == first.length
    pool.commit(first, tokens, 9)
    second = opened(pool, tokens, 16)
    assert first.pages[:2] == second.pages[:2]
    assert 8 == second.length
    assert not set(first.pages[2:]) & set(second.pages[2:])
    pool.close(first)
    pool.close(second)
    assert 8 == pool.available
    assert 2 == pool.kept


def test_one_token_is_always_left_to_compute() -> None:
    pool = PagePool(8, 4)
    tokens = list(range(8))
    first = opened(pool, tokens, 12)
    pool.commit(first, tokens, 8)
    assert 4 == opened(pool, tokens, 12).length


def test_i8_pages_without_draft_context_are_not_for_a_request_that_drafts() -> None:
    pool = PagePool(8, 4)
    tokens = list(range(9))
    plain = opened(pool, tokens, 9, "plain")
    pool.commit(plain, tokens, 9)
    assert 0 == opened(pool, tokens, 9, "drafting").length
    assert 8 == opened(pool, tokens, 9, "plain").length


@pytest.mark.parametrize("changed", [0, 3, 4, 7])
def test_a_prefix_that_differs_anywhere_is_not_shared(changed: int) -> None:
    pool = PagePool(8, 4)
    tokens = list(range(9))
    pool.commit(opened(pool, tokens, 9), tokens, 9)
    other = [token + 50 * (index == changed) for index, token in enumerate(tokens)]
    assert 4 * (changed // 4) == opened(pool, other, 9).length


def test_kept_pages_are_given_up_for_new_requests_oldest_first() -> None:
    pool = PagePool(4, 4)
    for start in (0, 100):
        tokens = list(range(start, start + 5))
        table = opened(pool, tokens, 8)
        pool.commit(table, tokens, 5)
        pool.close(table)
    assert 2 == pool.kept
    opened(pool, [7], 12)
    assert 1 == pool.available
    # The second prompt's page is still known, the first one's is gone.
    again = opened(pool, [100, 101, 102, 103, 9], 4)
    assert 4 == again.length


def test_of_one_prompt_the_last_pages_are_given_up_first() -> None:
    # Without the pages before it, a kept page is of no use to anyone.
    pool = PagePool(4, 4)
    tokens = list(range(17))
    table = opened(pool, tokens, 16)
    pool.commit(table, tokens, 16)
    pool.close(table)
    assert 4 == pool.kept
    opened(pool, [99], 4)
    assert 12 == opened(pool, tokens[:13], 12).length


def test_sharing_does_not_promise_pages_twice() -> None:
    pool = PagePool(3, 4)
    tokens = list(range(9))
    table = opened(pool, tokens, 12)
    pool.commit(table, tokens, 9)
    pool.close(table)
    # All three pages are kept or free, two of them would be shared: two more are too many.
    assert pool.open(tokens, 16, "drafting") is None
    assert 3 == pool.available


def test_reuse_can_be_switched_off() -> None:
    pool = PagePool(8, 4, reuse_prefixes=False)
    tokens = list(range(9))
    table = opened(pool, tokens, 9)
    pool.commit(table, tokens, 9)
    assert 0 == opened(pool, tokens, 9).length
    pool.close(table)
    assert 0 == pool.kept


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(1, 30), st.booleans(), st.integers(0, 9)),
        max_size=40,
    )
)
def test_no_page_is_lost_or_held_twice(steps: list[tuple[int, int, bool, int]]) -> None:
    pool = PagePool(10, 4)
    open_tables: list[PageTable] = []
    for start, size, closes, which in steps:
        if closes and open_tables:
            pool.close(open_tables.pop(which % len(open_tables)))
        else:
            tokens = list(range(start, start + size))
            table = pool.open(tokens, size + 4, "drafting")
            if table is not None:
                pool.commit(table, tokens, size)
                open_tables.append(table)
        in_use = {page for table in open_tables for page in table.pages}
        assert len(in_use) == pool.held
        assert 10 == pool.held + pool.available
        for table in open_tables:
            assert len(set(table.pages)) == len(table.pages)
    for table in open_tables:
        pool.close(table)
    assert 10 == pool.available
