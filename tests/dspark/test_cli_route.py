"""`dspark route`: outputs, exit codes, and mistakes in how it is called."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from dspark.cli import main
from dspark.find import find_checkpoints
from tests.support.configs import BASE, EAGLE3, run, with_keys, write_config

EAGLE3_MESSAGE = (
    "this is an EAGLE-3 draft: it drafts token by token from fused features, "
    "and no lane here runs it"
)


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    return write_config(tmp_path / "broken", "{")


def test_plain_output_is_one_line_for_a_lane_and_three_for_a_refusal(
    lane: Path, refused: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(["route", str(lane), str(refused)])

    assert 3 == code
    assert [
        f"{lane}: lane qwen3-dspark  [L001 qwen3-dspark-native]",
        f"{refused}: refused  [R028 eagle3]",
        f"    {EAGLE3_MESSAGE}",
        "    help: serve it with SGLang or TensorRT-LLM, or ask `dspark handoff vllm`",
        "2 checkpoints: 1 in a lane, 1 refused",
    ] == capsys.readouterr().out.splitlines()


def test_the_highest_code_of_several_counts(lane: Path, refused: Path, broken: Path) -> None:
    codes = [
        main(["route", "--quiet", *map(str, places)])
        for places in ([lane], [lane, refused], [broken, refused, lane])
    ]

    assert [0, 3, 4] == codes


def test_quiet_prints_nothing(refused: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["route", "--quiet", str(refused)])

    assert "" == "".join(capsys.readouterr())


def test_json_is_one_object_per_line_with_exactly_the_promised_keys(
    lane: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["route", "--json", str(lane), str(lane)])

    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert first == second
    assert {
        "source": str(lane),
        "decision": {
            "rule_id": "L001",
            "name": "qwen3-dspark-native",
            "lane": "qwen3-dspark",
            "refusal": None,
        },
        "facts": {
            "packaging": "flat",
            "algorithm": None,
            "architecture": ["Qwen3DSparkModel"],
            "model_type": "qwen3",
            "markov": "positive",
        },
        "evidence": [
            {"fact": "packaging", "value": "flat", "key": "mask_token_id"},
            {"fact": "algorithm", "value": None, "key": None},
            {"fact": "architecture", "value": "Qwen3DSparkModel", "key": "architectures[0]"},
            {"fact": "model_type", "value": "qwen3", "key": "model_type"},
            {"fact": "markov", "value": "positive", "key": "markov_rank"},
        ],
        "stage": "route",
        "table_version": first["table_version"],
        "warnings": [],
    } == first
    assert 12 == len(first["table_version"])


def test_explain_shows_evidence_path_and_what_kept_the_nearest_rule_away(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = write_config(tmp_path / "x", with_keys(BASE, architectures=["Qwen3DSparkModle"]))

    code = main(["route", "--explain", str(place)])

    output = capsys.readouterr().out
    assert 3 == code
    assert "R000 unknown-architecture" in output
    assert "did you mean `Qwen3DSparkModel`?" in output
    assert "architecture: Qwen3DSparkModle <- architectures[0] = Qwen3DSparkModle" in output
    assert "markov: positive <- markov_rank = 256" in output
    assert "architecture is `Qwen3DSparkModle`  (no rule names it)" in output
    assert "    L001 qwen3-dspark-native  (lane qwen3-dspark)" in output
    assert "      architecture is `Qwen3DSparkModle`; it asks for Qwen3DSparkModel" in output


def test_recursive_finds_every_folder_with_a_config(
    lane: Path, refused: Path, broken: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    deep = write_config(tmp_path / "a" / "b" / "c", EAGLE3)
    (tmp_path / "no-checkpoint").mkdir()

    code = main(["route", "--json", "--recursive", str(tmp_path)])

    sources = [json.loads(line)["source"] for line in capsys.readouterr().out.splitlines()]
    assert 4 == code
    assert sorted(map(str, (lane, refused, broken, deep))) == sources


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--recursive", "{missing}"], "--recursive needs a folder"),
        (["--recursive", "{empty}"], "no folder under"),
        (["--rules", "{missing}", "{empty}"], "cannot read the rules file"),
        (["--rules", "{empty}", "{empty}"], "cannot read the rules file"),
    ],
)
def test_mistakes_in_the_call_are_usage_errors(
    arguments: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    places = {"missing": str(tmp_path / "missing"), "empty": str(empty)}

    code = main(["route", *(argument.format(**places) for argument in arguments)])

    captured = capsys.readouterr()
    assert (2, "") == (code, captured.out)
    assert words in captured.err


def test_standard_input() -> None:
    done = run("--json", "-", stdin=json.dumps(EAGLE3).encode())

    assert (3, b"") == (done.returncode, done.stderr)
    assert "eagle3" == json.loads(done.stdout)["decision"]["name"]


def test_a_folder_that_cannot_be_listed_is_an_answer(
    lane: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root may list anything, so the refusal is played."""
    closed = tmp_path / "closed"
    closed.mkdir()
    scandir = os.scandir

    def refuse(path: str) -> object:
        if str(path) == str(closed):
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)

    assert sorted([str(closed), str(lane)]) == sorted(find_checkpoints(str(tmp_path)))


def test_a_hundred_warnings_are_not_a_hundred_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # Each is `architectures` with one letter too many, and the config has none.
    names = {f"architectures{letter}": [] for letter in map(chr, range(0x3B1, 0x3B1 + 100))}
    place = write_config(tmp_path / "many", {"model_type": "qwen3", **names})

    main(["route", str(place)])
    text = capsys.readouterr().out
    main(["route", "--json", str(place)])
    warnings = json.loads(capsys.readouterr().out)["warnings"]

    assert 100 == len(warnings)
    assert 20 == text.count("[W007 misspelt-key]")
    assert "    ... and 80 more warnings, all of them with --json\n" in text
