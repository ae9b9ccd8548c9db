"""Where our table and an engine differ is declared, and what is declared is so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dspark.cli import main
from dspark.compile import compile_table
from dspark.parity import differs, hold_together
from dspark.parity_compile import shipped_packs
from dspark.parity_facts import Question
from dspark.parity_pack import Pack
from tests.support.packs import SMALL, case_lines, small_pack
from tests.support.vllm_parity import random_questions

TABLE = compile_table()
PACKS = {pack.name: pack for pack in shipped_packs()}
OURS = """\
divergences:
  - {theirs: [X001], ours: [lanes], why: the rank is asked for elsewhere}
  - {theirs: [X002], ours: [refusals], why: no lane here takes it}
  - {theirs: [X003], ours: [refusals], why: a wrong lane is worse than a refusal}
"""


@pytest.mark.parametrize("pack", PACKS.values(), ids=list(PACKS))
def test_every_divergence_is_declared_and_real(pack: Pack) -> None:
    report = hold_together(TABLE, pack)

    assert [] == [each.to_json() for each in report.undeclared]
    assert [] == [(each.divergence.place.line, each.rule_id) for each in report.stale]
    assert report.differences
    assert report.passed


@pytest.mark.parametrize("pack", PACKS.values(), ids=list(PACKS))
def test_a_witness_is_an_input_that_shows_the_difference(pack: Pack) -> None:
    for found in hold_together(TABLE, pack).differences:
        witness = json.loads(found.witness)
        question = Question(witness["config"], witness.get("flags", {}), witness.get("path", ""))

        assert found.ours is TABLE.route(question.config).rule
        assert found.theirs == pack.answer(question)


def test_random_drafts_show_nothing_that_is_not_declared() -> None:
    pack = PACKS["vllm-0.33.0"]
    for question in random_questions(7, 3000):
        decision = TABLE.route(question.config)
        answer = pack.answer(question)
        if decision.stage == "observe" or not differs(pack, decision.rule, answer):
            continue
        kind = "lanes" if decision.lane is not None else "refusals"
        declared = [
            each
            for each in pack.divergences
            if answer.rule.id in each.theirs and {decision.rule_id, kind} & set(each.ours)
        ]
        assert declared, (decision.rule_id, str(answer), question)


def block(pack: Pack, **more: object) -> tuple[Question, str]:
    question = Question({"architectures": ["BlockModel"], **more}, {"method": "block"})
    return question, pack.answer(question).outcome


def test_what_counts_as_a_difference(tmp_path: Path) -> None:
    pack = small_pack(tmp_path)
    lane = TABLE.rules["L001"]
    other_lane = TABLE.rules["L006"]
    refusal = TABLE.rules["R000"]
    answers = {
        "runs": pack.answer(block(pack, rank=8)[0]),
        "refuses": pack.answer(block(pack, rank=0)[0]),
        "swallows": pack.answer(Question({"architectures": ["BareModel"]})),
        "unknown": pack.answer(Question({})),
    }
    assert list(answers) == [answer.outcome for answer in answers.values()]

    assert {
        "runs": (False, True, True),
        "refuses": (True, True, False),
        "swallows": (True, True, True),
        "unknown": (False, False, False),
    } == {
        name: tuple(differs(pack, ours, answer) for ours in (lane, other_lane, refusal))
        for name, answer in answers.items()
    }


def test_an_undeclared_difference_is_shown_with_a_draft(tmp_path: Path) -> None:
    without = "".join(line for line in OURS.splitlines(keepends=True) if "X003" not in line)

    report = hold_together(TABLE, small_pack(tmp_path, SMALL + without))

    assert not report.passed
    assert report.undeclared
    for found in report.undeclared:
        assert ("X003", "swallows", "plain") == (found.theirs.rule.id, *found.theirs[1:3])
        assert found.ours.lane is None
        assert "architectures" in json.loads(found.witness)["config"]


def test_declared_it_passes_and_what_no_draft_shows_is_stale(tmp_path: Path) -> None:
    declared = hold_together(TABLE, small_pack(tmp_path, SMALL + OURS))
    more = OURS.replace("[X003]", "[X003, X000]").replace("[lanes]", "[lanes, R000]")
    stale = hold_together(TABLE, small_pack(tmp_path, SMALL + more))

    assert declared.passed
    assert not stale.passed
    assert ["R000", "X000"] == [each.rule_id for each in stale.stale]


def test_a_new_lane_of_ours_is_an_undeclared_divergence(tmp_path: Path) -> None:
    """The packs notice a table that starts to take what an engine swallows."""
    text = (Path(TABLE.file)).read_text(encoding="utf-8")
    edited = tmp_path / "drafts.yaml"
    before = "model_type: qwen3\n      markov: positive\n    lane: qwen3-dspark"
    assert 1 == text.count(before)
    edited.write_text(
        text.replace(
            before,
            "model_type: [qwen3, llama]\n      markov: positive\n"
            "    before: [R018]\n    lane: qwen3-dspark",
        ),
        encoding="utf-8",
    )

    report = hold_together(compile_table(edited), PACKS["vllm-0.33.0"])

    assert {("L001", "qwen3-dspark-of-another-backbone")} == {
        (each.ours.id, each.theirs.rule.name) for each in report.undeclared
    }


# ------------------------------------------------------------------------------ the command


def test_the_command_holds_every_pack_and_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert 0 == main(["parity", "llama.cpp", "tensorrt-llm"])

    lines = capsys.readouterr().out.splitlines()
    figures = [line for line in lines if ": declared, " not in line]
    assert ["llama.cpp:", "tensorrt-llm:"] == [line.split(" ")[0] for line in figures]
    assert all("0 of them undeclared" in line and line.endswith("0 stale") for line in figures)
    for divergence in PACKS["llama.cpp"].divergences:
        told = [line for line in lines if line.endswith(f": {divergence.why}")]
        assert ", ".join(divergence.ours) in told[0]


def test_the_command_fails_where_something_is_not_declared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pack = small_pack(tmp_path, SMALL + OURS.replace("X003", "X000"))
    monkeypatch.setattr("dspark.parity_compile.shipped_packs", lambda: (pack,))

    assert 1 == main(["parity"])

    output = capsys.readouterr().out
    assert "small: undeclared divergence: " in output
    assert "X003 taken-for-plain (swallows plain)" in output
    assert "stale divergence: no draft shows it for X000" in output
    assert "0 of them undeclared" not in output


def test_a_misspelt_pack_is_a_mistake_of_the_caller(capsys: pytest.CaptureFixture[str]) -> None:
    assert 2 == main(["parity", "lama.cpp"])

    assert "no parity pack is called `lama.cpp`; did you mean `llama.cpp`?" in (
        capsys.readouterr().err
    )


def test_the_check_of_a_table_fails_with_a_pack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Everything else is cut short: the table's own mutants take seconds."""
    from dspark import parity_check

    broken = parity_check.check_pack(small_pack(tmp_path, lines=case_lines([])))
    assert not broken.passed
    monkeypatch.setattr("dspark.parity_check.check_packs", lambda _: (broken,))
    monkeypatch.setattr("dspark.check.score", lambda *_: parity_check_score())
    monkeypatch.setattr("dspark.contract_check.mutants", lambda _: ())

    assert 1 == main(["check"])

    output = capsys.readouterr().out
    assert "not covered: X001 of small has no recorded case that agrees" in output
    assert "mutant survived: X002, delete the rule" in output
    assert "packs     1: 4 rules, 0 of 0 cases agree" in output


def parity_check_score() -> object:
    from dspark.mutation_score import Score

    return Score(1, 0, (), ())
