"""An edit of a pack that no recorded case notices is found, with a draft that shows it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dspark.parity_check import check_pack, check_packs
from dspark.parity_compile import shipped_packs
from tests.support.packs import CASES, SMALL, case_lines, small_pack


def survivors(folder: Path, without: set[int]) -> dict[str, str]:
    """Edit -> witness of what survives once these cases are taken out."""
    kept = [case for number, case in enumerate(CASES) if number not in without]
    report = check_pack(small_pack(folder, lines=case_lines(kept)))
    assert not report.failures
    return {f"{s.edit.rule.id} {s.edit.label}": s.witness for s in report.score.survivors}


def test_the_packs_that_ship_pass_and_nothing_survives() -> None:
    for report in check_packs(shipped_packs()):
        assert report.passed, report.to_json()
        assert not report.score.survivors
        assert report.score.killed > 150


def test_the_small_pack_passes(tmp_path: Path) -> None:
    report = check_pack(small_pack(tmp_path))

    assert report.passed, report.to_json()


@pytest.mark.parametrize(
    ("without", "edit"),
    [
        ({0}, "X001 narrow rank by zero"),
        ({4}, "X001 widen rank by invalid"),
        ({5}, "X002 widen architecture by BareModel"),
        ({6}, "X002 widen method by ABSENT"),
        ({7}, "X003 narrow method by other in alternative 1"),
        ({9}, "X002 widen architecture by ABSENT"),
        ({0, 1}, "X001 exchange it with X002"),
        ({5, 8}, "X003 delete alternative 2"),
        ({6, 7}, "X003 negate method in alternative 1"),
    ],
)
def test_without_its_case_an_edit_survives_with_a_witness(
    without: set[int], edit: str, tmp_path: Path
) -> None:
    assert edit not in survivors(tmp_path, set())

    found = survivors(tmp_path, without)

    assert edit in found
    json.loads(found[edit])


def test_a_rule_without_a_case_is_uncovered_and_every_edit_of_it_survives(tmp_path: Path) -> None:
    kept = [case for case in CASES if case["rule"] != "X002"]
    report = check_pack(small_pack(tmp_path, lines=case_lines(kept)))

    assert ("X002",) == report.uncovered
    found = {s.edit.label for s in report.score.survivors if s.edit.rule.id == "X002"}
    assert {"delete the rule", "say `refuses` instead", "say `unknown` instead"} <= found


def test_a_case_that_fails_kills_nothing(tmp_path: Path) -> None:
    wrong: list[dict[str, object]] = [
        {**case, "rule": "X001"} for case in CASES if case["rule"] == "X002"
    ]
    report = check_pack(small_pack(tmp_path, lines=case_lines(wrong)))

    assert 2 == len(wrong) == len(report.failures)
    assert ("X001", "X002", "X003", "X000") == report.uncovered
    assert 0 == report.score.killed


def test_a_rule_that_no_draft_reaches_is_uncovered_all_the_same(tmp_path: Path) -> None:
    """Two facts may read one key; the compiler cannot know that they never disagree."""
    impossible = SMALL.replace(
        "commands:", "  there: {key: nested_config.rank, as: presence}\ncommands:"
    ).replace(
        "  X001:\n    name: no-rank\n",
        "  X005:\n    name: never\n    when: {rank: positive, there: ABSENT}\n    unknown: never\n"
        "    refs: [small.py]\n  X001:\n    name: no-rank\n",
    )

    report = check_pack(small_pack(tmp_path, impossible))

    assert ("X005",) == report.uncovered


def test_a_default_that_nothing_is_left_to_needs_no_case(tmp_path: Path) -> None:
    all_taken = SMALL.replace(
        "  X000:\n    name: not-read\n",
        "  X004:\n    name: rest\n    when: {rank: [positive, zero, invalid, ABSENT]}\n"
        "    unknown: all the rest\n    refs: [small.py]\n  X000:\n    name: not-read\n",
    )
    moved = [{**case, "rule": str(case["rule"]).replace("X000", "X004")} for case in CASES]

    report = check_pack(small_pack(tmp_path, all_taken, case_lines(moved)))

    assert () == report.uncovered
