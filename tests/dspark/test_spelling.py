"""Which names are a slip of the keyboard apart."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dspark.spelling import nearest, slip

KNOWN = frozenset({"num_hidden_layers", "model_type", "head_dim", "use_swa", "intermediate_size"})


def common(a: str, b: str) -> int:
    """How many letters the two have in common, in order."""
    if not a or not b:
        return 0
    if a[0] == b[0]:
        return 1 + common(a[1:], b[1:])
    return max(common(a[1:], b), common(a, b[1:]))


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("num_hiden_layers", "num_hidden_layers"),
        ("num_hidden_layerss", "num_hidden_layers"),
        ("num_hidden_loyers", "num_hidden_layers"),
        ("num_hidden_lyaers", "num_hidden_layers"),
        ("numhidden_layers", "num_hidden_layers"),
        ("num-hidden_layers", "num_hidden_layers"),
        ("model_typ", "model_type"),
        ("odel_type", "model_type"),
        ("Model_Type", "model_type"),
        ("modelType", "model_type"),
        ("headdim", "head_dim"),
    ],
)
def test_one_letter_too_many_too_few_wrong_or_out_of_place(word: str, meant: str) -> None:
    assert meant == slip(word, KNOWN)


@pytest.mark.parametrize("word", ["v_head_dim", "moe_intermediate_size"])
def test_a_name_that_shares_its_words_is_another_name(word: str) -> None:
    assert nearest(word, KNOWN) is not None
    assert slip(word, KNOWN) is None


@pytest.mark.parametrize("word", ["use_dsa", "use_rswa", "num_hiden_layer", "model", "", "x" * 101])
def test_what_is_short_or_further_off_is_not_close(word: str) -> None:
    assert slip(word, KNOWN) is None


@pytest.mark.parametrize("word", sorted(KNOWN))
def test_a_known_name_is_no_slip(word: str) -> None:
    near = KNOWN | {f"{word}s"}

    assert slip(word, near) is None


def test_a_name_beyond_any_length_is_not_looked_at() -> None:
    # What is left of it without each of its letters would be its square in size.
    assert "m" * 100 == slip("m" * 99, frozenset({"m" * 100}))
    assert slip("m" * 101, frozenset({"m" * 100})) is None


NAMES = st.text("ab_", min_size=7, max_size=10)


@given(NAMES, NAMES)
def test_they_are_the_same_but_for_a_letter_of_each(word: str, name: str) -> None:
    apart = max(len(word), len(name)) - common(word, name)
    close = apart <= 1 and word != name and len(name) >= 8

    assert (name if close else None) == slip(word, frozenset({name}))


@given(NAMES, st.sets(NAMES, max_size=4))
def test_of_several_one_that_is_close_alone_is_found(word: str, names: set[str]) -> None:
    found = slip(word, frozenset(names))

    alone = {name for name in names if slip(word, frozenset({name}))}
    assert (found in alone) if alone - {word} and word not in names else (found is None)
