"""A pack's facts: what each way of reading makes of a value, and that it can be read backwards."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dspark.facts import OTHER, Cell
from dspark.parity_compile import shipped_packs
from dspark.parity_facts import ENTRIES, SHAPES, Asked, Question
from dspark.parity_inputs import Writer
from dspark.parity_pack import Pack

REGISTRY = {"First": 0, "Second": 1}


def cell(asked: Asked, config: dict[str, object] | None = None, **more: object) -> Cell:
    flags = more.get("flags", {})
    assert isinstance(flags, dict)
    return asked.read(Question(config or {}, flags, str(more.get("path", ""))), REGISTRY)


@pytest.mark.parametrize(
    ("shape", "cells"),
    [
        ("text", [("qwen3", "qwen3"), (7, "not text")]),
        ("size", [(8, "positive"), (0, "zero"), (-1, "invalid"), (8.0, "invalid")]),
        ("presence", [(0, "present"), (False, "present"), ("", "present")]),
        ("truth", [(True, "yes"), (False, "no"), (1, "invalid"), ("yes", "invalid")]),
        ("count", [(1, "one"), (2, "several"), (0, "invalid"), (True, "invalid")]),
    ],
)
def test_a_value_is_read_as_the_fact_says(shape: str, cells: list[tuple[object, Cell]]) -> None:
    asked = Asked("fact", "key", ("a.b",), shape)

    assert cells == [(value, cell(asked, {"a": {"b": value}})) for value, _ in cells]
    assert cell(asked, {"a": {"b": None}}) is None
    assert cell(asked, {"a": 1}) is None
    assert cell(asked) is None


def test_true_is_no_number() -> None:
    assert "invalid" == cell(Asked("fact", "key", ("rank",), "size"), {"rank": True})
    assert "invalid" == cell(
        Asked("fact", "key", ("rank",), against=("k",)), {"rank": True, "k": 1}
    )


def test_the_first_place_that_is_set_counts() -> None:
    asked = Asked("fact", "key", ("nested.rank", "rank"), "size")

    assert "zero" == cell(asked, {"nested": {"rank": 0}, "rank": 8})
    assert "positive" == cell(asked, {"nested": {"rank": None}, "rank": 8})


@pytest.mark.parametrize(
    ("value", "bound", "expected"),
    [
        (3, 4, "below"),
        (4, 4, "equal"),
        (8, 4, "multiple"),
        (6, 4, "uneven"),
        (6, None, "unbounded"),
        (6, 0, "unbounded"),
        (6, "4", "unbounded"),
        (0, 4, "invalid"),
        ("6", 4, "invalid"),
        (None, 4, "default"),
        (None, None, None),
    ],
)
def test_a_count_is_held_against_another(value: object, bound: object, expected: Cell) -> None:
    by_key = Asked("fact", "flag", ("tokens",), against=("first", "block"))
    by_flag = Asked("fact", "flag", ("tokens",), against=("--block",))

    assert expected == cell(by_key, {"block": bound}, flags={"tokens": value})
    assert expected == cell(by_flag, flags={"tokens": value, "block": bound})


@pytest.mark.parametrize(
    ("declared", "only", "ranked"),
    [
        (None, None, None),
        ([], None, None),
        ("First", None, None),
        ([1, 2], None, None),
        (["Other"], "unregistered", "unregistered"),
        (["Other", "Second"], "Second", "Second"),
        (["Second", "Second"], "Second", "Second"),
        (["Second", "First"], "several", "First"),
    ],
)
def test_the_entry_of_the_registry(declared: object, only: Cell, ranked: Cell) -> None:
    found = [cell(Asked("fact", "entry", (kind,)), {"architectures": declared}) for kind in ENTRIES]

    assert [only, ranked] == found


def test_words_are_looked_for_in_their_order_and_in_small_letters() -> None:
    asked = Asked("fact", "words", words={"eagle-": "eagle", "eagle3": "eagle3"})

    assert "eagle" == cell(asked, path="home/EAGLE3/Eagle-x")
    assert "eagle3" == cell(asked, path="EAGLE3")
    assert cell(asked, path="a/draft") is None


def test_a_firm_flag_counts_before_words_and_another_after_them() -> None:
    asked = Asked(
        "called",
        "flag",
        ("method",),
        words={"eagle-": "eagle"},
        firm=("block",),
        same={"old": "mtp"},
        of=("mtp", "plain"),
        absent="plain",
    )
    found = {
        (method, path): cell(asked, path=path, flags={"method": method})
        for method in ("block", "mtp", "old", "new", None)
        for path in ("x/eagle-y", "x")
    }

    assert {
        ("block", "x/eagle-y"): "block",
        ("block", "x"): "block",
        ("mtp", "x/eagle-y"): "eagle",
        ("mtp", "x"): "mtp",
        ("old", "x/eagle-y"): "eagle",
        ("old", "x"): "mtp",
        ("new", "x/eagle-y"): "eagle",
        ("new", "x"): "other",
        (None, "x/eagle-y"): "eagle",
        (None, "x"): "plain",
    } == found
    assert set(found.values()) <= set(asked.cells() or ())


def test_words_beside_a_key_are_looked_for_in_its_value() -> None:
    asked = Asked("family", "key", ("model_type",), words={"qwen3": "qwen3"})

    assert "qwen3" == cell(asked, {"model_type": "my_qwen3_text"}, path="x")
    assert "other" == cell(asked, {"model_type": "llama"}, path="qwen3")
    assert cell(asked, path="qwen3") is None


PACKS = shipped_packs()
FACTS = [(pack, asked) for pack in PACKS for asked in pack.asked]


def written(pack: Pack, asked: Asked) -> list[Cell]:
    closed = asked.cells()
    if closed is not None:
        return list(closed)
    if asked.source == "entry":
        several = ["several"] if asked.places == ("only",) else []
        return [*list(pack.registry)[:3], OTHER, "unregistered", *several, None]
    return ["qwen3", OTHER, None]


@pytest.mark.parametrize(
    ("pack", "asked"), FACTS, ids=[f"{pack.name}-{asked.name}" for pack, asked in FACTS]
)
def test_what_is_written_for_a_cell_is_read_as_that_cell(pack: Pack, asked: Asked) -> None:
    start = Question({"dflash_config": {"kept": 1}}, {"kept": 1}, "eagle-1/eagle3/dflash/DSpark")
    for wanted in written(pack, asked):
        writer = Writer(start, tuple(pack.registry), pack._spare)
        writer.write(asked, wanted)
        found = asked.read(writer.question(), pack.registry)

        expected = wanted
        if asked.source == "entry" and wanted == OTHER:
            # Where the rules name all of the registry, nothing is left that could be this cell.
            expected = pack._spare if pack._spare in pack.registry else "unregistered"
        assert expected == found, (wanted, writer.question())


def test_what_is_written_leaves_the_start_alone() -> None:
    start = Question({"dflash_config": {"kept": 1}}, {"kept": 1})
    writer = Writer(start, ("First",), "First")
    writer.write(Asked("a", "key", ("dflash_config.rank",), "size"), "positive")
    writer.write(Asked("b", "flag", ("method",)), "block")

    assert ({"dflash_config": {"kept": 1}}, {"kept": 1}) == (start.config, start.flags)
    assert {"kept": 1, "rank": 7} == writer.question().config["dflash_config"]


@given(st.sampled_from(FACTS), st.data())
def test_every_value_has_a_cell_that_the_fact_lists(
    found: tuple[Pack, Asked], data: st.DataObject
) -> None:
    pack, asked = found
    values = st.none() | st.booleans() | st.integers(-2, 9) | st.sampled_from(["", "qwen3", "x"])
    places = {place: data.draw(values) for place in asked.places if "." not in place}

    read = asked.read(Question(places, places, data.draw(st.text(max_size=5))), pack.registry)

    closed = asked.cells()
    assert read in closed if closed is not None else read is None or isinstance(read, str)


def test_every_shape_is_used_by_some_pack() -> None:
    assert set(SHAPES) == {asked.shape for _, asked in FACTS}
