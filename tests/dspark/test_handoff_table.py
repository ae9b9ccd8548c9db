"""The hand-off's own file: it answers for every rule, and every mistake in it is reported."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import dspark
from dspark.diagnostics import Report
from dspark.document import Document
from dspark.files import rules_file
from dspark.handoff_check import prove_handoff, prove_handoffs
from dspark.handoff_reader import handoff_table, read_handoff
from tests.dspark.test_schemas import data, problems

FILE = rules_file("handoff") / "vllm-0.33.yaml"
TEXT = FILE.read_text(encoding="utf-8")


def found_in(text: str) -> list[str]:
    """The names of everything that is wrong with a hand-off."""
    document = Document(text.encode(), "vllm.yaml", Report())
    prove_handoff(document, read_handoff(document), dspark.compile_table())
    return [each.headline().partition(": ")[2] for each in document.report.diagnostics()]


def edited(old: str, new: str) -> str:
    assert 1 == TEXT.count(old), old
    return TEXT.replace(old, new)


def test_the_one_that_ships_is_sound() -> None:
    assert [] == found_in(TEXT)
    assert [] == problems("handoff-table", data(FILE))
    prove_handoffs(dspark.compile_table())
    first = TEXT.splitlines()[0]
    assert "# yaml-language-server: $schema=../../schemas/handoff-table.schema.json" == first


@pytest.mark.parametrize("rule_id", sorted(dspark.compile_table().rules))
def test_every_rule_of_the_table_is_answered_for(rule_id: str) -> None:
    without = re.sub(rf"^  {rule_id}:(.*\n)(?:    .*\n)*", "", TEXT, flags=re.MULTILINE)
    assert without != TEXT

    found = [line for line in found_in(without) if "[D0" in line and "no-handoff" in line]

    assert [f"`{rule_id}` has no hand-off to vllm 0.33"] == [
        line.partition("rule ")[2] for line in found
    ]


@pytest.mark.parametrize(
    ("old", "new", "kind", "says"),
    [
        (
            "  R006: {serve: dspark-k3}",
            "  R006: {serve: dspark-k4}",
            "unknown-name",
            "no recipe is called `dspark-k4`",
        ),
        (
            "  R013: {refuse: handoff-undecided}",
            "  R013: {refuse: handoff-undecide}",
            "unknown-name",
            "no finding is called",
        ),
        (
            "  R006: {serve: dspark-k3}",
            "  R906: {serve: dspark-k3}",
            "unknown-name",
            "no rule is called `R906`",
        ),
        (
            "  R006: {serve: dspark-k3}",
            "  R006: {serve: dspark-k3, refuse: handoff-undecided}",
            "no-outcome",
            "both `serve`",
        ),
        ("  R006: {serve: dspark-k3}", "  R006: {because: x}", "no-outcome", "neither `serve`"),
        ("    - {serve: dspark-gemma4}\n", "", "handoff-cases", "nothing takes what it leaves"),
        (
            "{when: {packaging: [speculators]}, serve: peagle-speculators}",
            "{serve: peagle-speculators}",
            "handoff-cases",
            "never reached",
        ),
        (
            "architecture: [MiniMaxDFlash2DraftModel]",
            "architecture: [MiniMaxDFlash]",
            "idle-key",
            "decides no config with this architecture",
        ),
        (
            "architecture: [MiniMaxDFlash2DraftModel]",
            "architectures: [MiniMaxDFlash2DraftModel]",
            "unknown-fact",
            "`architectures`",
        ),
        ("not_block: [R000,", "not_block: [R999,", "unknown-name", "no rule is called `R999`"),
        ("    method: mtp\n", "    methods: mtp\n", "unknown-key", "`methods`"),
        ("    draft: of-target\n", "    draft: nowhere\n", "wrong-shape", "`draft` must be one of"),
        ("{name-without: [", "{without: [", "wrong-shape", "a check must be one of"),
        (
            "tokens: {places: [num_nextn_predict_layers, n_predict]}",
            "tokens: {places: [n_predict], less: one}",
            "wrong-shape",
            "`less` must be a whole number",
        ),
    ],
)
def test_a_mistake_is_reported(old: str, new: str, kind: str, says: str) -> None:
    found = [line for line in found_in(edited(old, new)) if f" {kind}]" in line]

    assert found, found_in(edited(old, new))
    assert says in found[0]


def test_a_recipe_that_serves_nothing_is_reported() -> None:
    found = found_in(edited("  R006: {serve: dspark-k3}", "  R006: {serve: dspark-muse}"))

    assert 1 == len(found)
    assert "`dspark-k3` does nothing here: no rule is served by this recipe" in found[0]


def test_every_answer_that_can_say_where_it_was_read_does() -> None:
    table = handoff_table()
    unread = {"handoff-undecided", "handoff-not-known"}

    assert [] == [
        (rule_id, case.finding)
        for rule_id, cases in table.rules.items()
        for case in cases
        if case.finding and case.finding not in unread and not case.refs
    ]


def test_the_image_is_of_the_version() -> None:
    table = handoff_table()

    assert f":v{table.version}." in table.image


def test_a_file_that_is_no_mapping_is_a_mistake_and_no_traceback(tmp_path: Path) -> None:
    for text in (
        "",
        "- a\n",
        "recipes: 3\n",
        "rules: {R001: [3]}\n",
        "recipes: {a: {tokens: [1]}}\n",
        "recipes: {a: {checks: [{[a]: b, finding: handoff-key-unread}]}}\n",
    ):
        document = Document(text.encode(), str(tmp_path), Report())
        read_handoff(document)
        assert document.report, text
