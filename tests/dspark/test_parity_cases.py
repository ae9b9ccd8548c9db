"""Every recorded answer of an engine is what its pack says; a line that is no case is reported."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from dspark.errors import TableError
from dspark.parity_cases import wrong
from dspark.parity_compile import CASES, compile_pack, pack_files, shipped_packs
from dspark.parity_facts import Question
from dspark.parity_pack import Pack, Recorded
from tests.support.packs import case_lines, small_pack, write_pack

RECORDED = [(pack, case) for pack in shipped_packs() for case in pack.cases]


@pytest.mark.parametrize(
    ("pack", "case"),
    RECORDED,
    ids=[f"{pack.name}-{case.place.line}-{case.rule_id}" for pack, case in RECORDED],
)
def test_the_pack_answers_what_was_observed(pack: Pack, case: Recorded) -> None:
    assert "" == wrong(pack, case), str(pack.answer(case.question))


def test_six_engines_are_packed_each_under_the_name_of_its_file() -> None:
    names = [
        "llama.cpp",
        "mlx-dspark-0.20.3",
        "sglang-0.5.23",
        "tensorrt-llm",
        "vllm-0.33.0",
        "vllm.cpp-1248",
    ]

    assert names == [file.name.removesuffix(".yaml") for file in pack_files()]
    assert names == [pack.name for pack in shipped_packs()]
    assert all((pack_files()[0].parent / f"{name}{CASES}").is_file() for name in names)


def test_enough_of_vllm_was_run_and_no_case_stands_twice() -> None:
    (vllm,) = [pack for pack in shipped_packs() if pack.name == "vllm-0.33.0"]
    asked = Counter(json.dumps(case.question._asdict(), sort_keys=True) for case in vllm.cases)

    assert 80 <= sum(case.how == "run" for case in vllm.cases)
    assert 1 == max(asked.values())


@pytest.mark.parametrize(
    "lines", ["SC:1433", "SC:1450", "SC:1496", "SC:1514", "SC:1534", "SC:1543"]
)
def test_each_step_of_vllms_chain_has_a_case_that_was_run(lines: str) -> None:
    (vllm,) = [pack for pack in shipped_packs() if pack.name == "vllm-0.33.0"]
    run = {case.rule_id for case in vllm.cases if case.how == "run"}

    assert run & {
        rule.id for rule in vllm.rules.values() if any(ref.startswith(lines) for ref in rule.refs)
    }


def test_a_wrong_lane_a_wrong_word_and_a_wrong_rule_are_told(tmp_path: Path) -> None:
    pack = small_pack(tmp_path)
    runs = pack.cases[3]
    refuses = pack.cases[0]
    assert "" == wrong(pack, runs) == wrong(pack, refuses)

    assert "X002: runs plain" == wrong(pack, runs._replace(says="plain"))
    assert "X002: swallows block" == wrong(pack, runs._replace(outcome="swallows"))
    assert "X003: runs block" == wrong(pack, runs._replace(rule_id="X003"))
    assert "X001: refuses needs a width" == wrong(pack, refuses._replace(says="needs a width"))


def test_the_engines_own_values_stand_in_its_words(tmp_path: Path) -> None:
    pack = small_pack(tmp_path)
    question = Question({"architectures": ["BareModel"]}, {"method": "block"})

    assert "BareModel needs a rank" == pack.answer(question).text


GOOD = {"rule": "X002", "config": {}, "runs": "block", "how": "read", "seen": "x"}


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("{", "it is not JSON"),
        ("[]", "it is not an object"),
        (json.dumps({**GOOD, "flag": {}}), "it has a key `flag`; did you mean `flags`?"),
        (json.dumps({**GOOD, "refuses": "x"}), "it needs exactly one of runs, swallows"),
        (json.dumps({**GOOD, "runs": ""}), "`runs` must be text"),
        (json.dumps({**GOOD, "seen": None}), "`seen` must be text"),
        (json.dumps({**GOOD, "how": "guessed"}), "`how` must be one of run, read"),
        (json.dumps({**GOOD, "config": []}), "`config` must be an object"),
        (json.dumps({**GOOD, "flags": []}), "`flags` must be an object"),
        (json.dumps({**GOOD, "path": 1}), "`path` must be text"),
    ],
)
def test_a_line_that_is_no_case_is_reported_where_it_stands(
    line: str, problem: str, tmp_path: Path
) -> None:
    good = case_lines()

    with pytest.raises(TableError) as caught:
        compile_pack(write_pack(tmp_path, lines=f"{good}{line}\n"))

    (found,) = caught.value.diagnostics
    assert ("D049", "bad-recorded-case") == (found.id, found.name)
    assert good.count("\n") + 1 == found.place.line
    assert problem in found.message


@pytest.mark.parametrize(
    ("edit", "what"),
    [
        ({"rule": "X009"}, "no rule of this pack is called `X009`"),
        ({"runs": "blocks"}, "no lane of this pack is called `blocks`"),
        ({"flags": {"methods": "x"}}, "no flag that this pack reads is called `methods`"),
    ],
)
def test_a_case_names_only_what_the_pack_has(
    edit: dict[str, object], what: str, tmp_path: Path
) -> None:
    with pytest.raises(TableError) as caught:
        compile_pack(write_pack(tmp_path, lines=json.dumps({**GOOD, **edit}) + "\n"))

    (found,) = caught.value.diagnostics
    assert "unknown-name" == found.name
    assert what in found.message
