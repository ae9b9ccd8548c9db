"""Dimensions against Python's own arithmetic, and what is no dimension."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dspark.dimensions import applies, evaluate, keys_of, parse_dim, same

KEYS = {"a": 7, "b": 11, "c_2": 13}
FACTORS = st.sampled_from([*KEYS, "2", "3", "10", "count(xs)"])
VALUES = {**KEYS, "xs": (1, 2, 3, 4, 5), "none": None, "flag": True}


@given(
    st.lists(st.lists(FACTORS, min_size=1, max_size=4), min_size=1, max_size=4),
    st.lists(st.sampled_from("+-"), min_size=4, max_size=4),
    st.sampled_from(["", " "]),
)
def test_a_dimension_is_the_arithmetic_it_looks_like(
    terms: list[list[str]], signs: list[str], gap: str
) -> None:
    products = [f"{gap}*{gap}".join(term) for term in terms]
    text = products[0] + "".join(
        f"{gap}{s}{gap}{p}" for s, p in zip(signs, products[1:], strict=False)
    )

    dim = parse_dim(text)

    assert dim is not None
    spelt = text.replace("count(xs)", "len(xs)")
    assert eval(spelt, {**VALUES, "len": len}) == evaluate(dim, VALUES)
    assert {name for name in (*KEYS, "xs") if name in text.replace("count", "")} == set(
        keys_of(dim)
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a b",
        "a / b",
        "a **",
        "* a",
        "a +",
        "+ a",
        "- a",
        "count()",
        "count(a",
        "A",
        "07",
        "1.5",
        "a-",
        "(a)",
    ],
)
def test_what_is_no_dimension(text: str) -> None:
    assert parse_dim(text) is None


@pytest.mark.parametrize("text", ["none", "flag", "xs", "missing", "count(a)", "count(missing)"])
def test_a_key_without_a_number_has_no_size(text: str) -> None:
    dim = parse_dim(text)
    assert dim is not None

    with pytest.raises(KeyError):
        evaluate(dim, VALUES)


@pytest.mark.parametrize(
    ("when", "wanted"),
    [
        (None, True),
        ({}, True),
        ({"a": 7}, True),
        ({"a": 8}, False),
        ({"a": 7, "b": 12}, False),
        ({"flag": True}, True),
        ({"flag": 1}, False),
        ({"xs": 3}, True),
        ({"xs": 6}, False),
        ({"none": True}, False),
        ({"missing": None}, False),
    ],
)
def test_a_condition(when: dict[str, object] | None, wanted: bool) -> None:
    assert wanted == applies(when, VALUES)


@pytest.mark.parametrize(
    ("first", "second", "wanted"),
    [(1, 1.0, True), (1, True, False), (0, False, False), ("1", 1, False), (None, None, True)],
)
def test_equal_and_of_one_kind(first: object, second: object, wanted: bool) -> None:
    assert wanted == same(first, second) == same(second, first)
