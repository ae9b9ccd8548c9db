"""Where two rules meet, which tells what an edit of one could change about the other."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dspark.condition import Condition
from dspark.facts import ALONE
from dspark.mutate import overlap
from dspark.rule import When
from tests.support.tables import every_cell, tables


def test_rules_do_not_meet_in_a_gguf_file_of_some_architecture() -> None:
    """Or dropping `packaging` from a rule would pass for an overlap with the rule for GGUF."""
    gguf: When = {"packaging": Condition(frozenset({"gguf"}))}
    named: When = {"architecture": Condition(frozenset({"Alpha"}))}

    assert not overlap(gguf, named)
    assert overlap(named, {"packaging": Condition(frozenset({"gguf", "flat"}))})


@given(st.data())
def test_a_quick_overlap_is_one(data: st.DataObject) -> None:
    table = data.draw(tables(("packaging", "architecture", "markov")))
    whens: list[When] = [when for rule in table.rules.values() for when in rule.when]
    first, second = data.draw(st.sampled_from(whens)), data.draw(st.sampled_from(whens))

    meet = [
        cells
        for cells in every_cell(table.facts, table)
        if all(c.accepts(cells[f]) for when in (first, second) for f, c in when.items())
        and cells["packaging"] != ALONE[1]
    ]

    assert bool(meet) == overlap(first, second)
