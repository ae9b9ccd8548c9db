"""Two tables side by side: every change of decision, and no other."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dspark.cli import main
from dspark.compare import Difference, compare, compare_tables
from dspark.compile import compile_table, compile_text
from dspark.compiled import Table
from dspark.condition import Condition
from dspark.facts import FACTS, OTHER
from tests.support.tables import (
    RandomTable,
    every_cell,
    make_rule,
    naive,
    tables,
)

ALL_FACTS = tuple(FACTS)


def found_between(old: RandomTable, new: RandomTable) -> list[Difference]:
    return compare(old.facts, (old.rules, old.default), (new.rules, new.default))


@st.composite
def pairs(draw: st.DrawFn) -> tuple[RandomTable, RandomTable]:
    """Two tables of one fact order: unrelated, or the second an edit of the first."""
    old = draw(tables())
    if draw(st.booleans()):
        return old, draw(tables(old.facts))
    edited = draw(tables(old.facts)).rules
    kept = {rule_id: rule for rule_id, rule in old.rules.items() if draw(st.booleans())}
    return old, old._replace(rules={**edited, **kept})


def clashes(table: RandomTable) -> bool:
    return any(naive(table, cells) is None for cells in every_cell(table.facts, table))


@given(pairs())
def test_the_differences_are_those_of_all_cells(pair: tuple[RandomTable, RandomTable]) -> None:
    old, new = pair
    if clashes(old) or clashes(new):
        return
    changes = set()
    for cells in every_cell(old.facts, old, new):
        before, after = naive(old, cells), naive(new, cells)
        assert before is not None
        assert after is not None
        if (before.id, before.lane) != (after.id, after.lane):
            changes.add((before.id, before.lane, after.id, after.lane))

    found = [(d.old.id, d.old.lane, d.new.id, d.new.lane) for d in found_between(old, new)]

    assert changes == set(found)
    assert len(set(found)) == len(found)


@given(pairs())
def test_every_witness_shows_its_change(pair: tuple[RandomTable, RandomTable]) -> None:
    old, new = pair
    if clashes(old) or clashes(new):
        return
    possible = [tuple(cells.values()) for cells in every_cell(old.facts, old, new)]

    for change in found_between(old, new):
        cells = dict(zip(old.facts, change.cells, strict=True))
        before, after = naive(old, cells), naive(new, cells)
        assert before is not None
        assert after is not None
        assert (change.old.id, change.new.id) == (before.id, after.id)
        assert change.cells in possible
        assert ("gguf" in change.cells) == (not change.witness)


@given(tables())
def test_a_table_does_not_differ_from_itself(table: RandomTable) -> None:
    assert [] == found_between(table, table)


# ------------------------------------------------------------------------------ compiled tables


def compiled(text: str) -> Table:
    return compile_text(text.encode(), "table.yaml")


OLD = """
table: small
facts: [architecture, markov]
default: R000
lanes: {block: block drafts}
rules:
  L001:
    name: block
    when: {architecture: BlockModel, markov: positive}
    lane: block
    why: it was published
    tests: [{hit: {architectures: [BlockModel], markov_rank: 8}, lane: block}]
  R000:
    name: no-rule
    refuse: no rule decides
    why: nothing matched
    tests: [{hit: {}, says: no rule decides}]
"""


def edited(*changes: tuple[str, str]) -> str:
    text = OLD
    for old, new in changes:
        assert 1 == text.count(old)
        text = text.replace(old, new)
    return text


def test_a_routed_witness_gets_both_decisions() -> None:
    old = compiled(OLD)
    new = compiled(edited(("markov: positive}", "markov: [positive, invalid]}")))

    (change,) = compare_tables(old, new)

    config = json.loads(change.witness)
    assert ("R000", "L001") == (change.old.id, change.new.id)
    assert {"architectures": ["BlockModel"], "markov_rank": -1} == config
    assert ("R000", "L001") == (old.route(config).rule_id, new.route(config).rule_id)


def test_tables_with_different_facts_are_compared_over_all_of_them() -> None:
    """`packaging` comes first then too, or a GGUF file would be given an architecture."""
    old = compiled(OLD)
    new = compiled(
        edited(
            ("facts: [architecture", "facts: [packaging, model_type, architecture"),
            ("when: {arch", "when: {packaging: flat, model_type: {not: llama}, arch"),
        )
    )

    (change,) = compare_tables(old, new)

    config = json.loads(change.witness)
    assert ("L001", "R000") == (change.old.id, change.new.id)
    assert ("L001", "R000") == (old.route(config).rule_id, new.route(config).rule_id)


def test_a_renamed_rule_and_another_lane_are_changes_and_other_words_are_not() -> None:
    old = compiled(OLD)
    renamed = compiled(edited(("    name: block\n", "    name: block-draft\n")))
    moved = compiled(
        OLD.replace("lane: block", "lane: tree").replace("{block: block", "{tree: tree")
    )
    reworded = compiled(edited(("why: it was published", "why: it is there")))

    assert [("L001", "L001")] == [(d.old.id, d.new.id) for d in compare_tables(old, renamed)]
    assert [("block", "tree")] == [(d.old.lane, d.new.lane) for d in compare_tables(old, moved)]
    assert [] == compare_tables(old, reworded)


def test_a_change_no_config_can_show_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    gguf = {"packaging": Condition(frozenset({"gguf"}))}
    default = make_rule("R000", ())

    (change,) = compare(("packaging",), ({}, default), ({"R1": make_rule("R001", [gguf])}, default))

    assert ("gguf",) == change.cells
    assert change.to_json()["witness"] is None
    assert capsys.readouterr().out == ""


def test_the_shipped_table_is_compared_over_open_names_too() -> None:
    """A new architecture is one no rule names yet, and ABSENT is not one."""
    table = compile_table()
    rule = make_rule("R999", [{"architecture": Condition(frozenset({"NewModel"}))}])
    rules = {**table.rules, rule.id: rule._replace(before=frozenset(table.rules))}

    changes = compare(table.facts, (table.rules, table.default), (rules, table.default))

    assert {"R999"} == {change.new.id for change in changes}
    assert {"NewModel"} == {change.cells[table.facts.index("architecture")] for change in changes}
    assert OTHER not in {change.cells[table.facts.index("architecture")] for change in changes}


def test_diff_exits_with_1_when_a_decision_changes(
    tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path_factory.mktemp("diff")
    old, new = folder / "old.yaml", folder / "new.yaml"
    old.write_text(OLD, encoding="utf-8")
    new.write_text(edited(("markov: positive}", "markov: PRESENT}")), encoding="utf-8")

    assert 0 == main(["diff", str(old), str(old)])
    assert "no config changes decision\n" == capsys.readouterr().out
    assert 1 == main(["diff", str(old), str(new)])
    assert [
        "R000 no-rule (refusal) -> L001 block (lane block)",
        '    {"architectures": ["BlockModel"], "markov_rank": -1}',
        "1 kind of config changes decision",
    ] == capsys.readouterr().out.splitlines()
