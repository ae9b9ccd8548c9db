"""The command line: outputs, exit codes, and mistakes in how it is called."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from os import close, environ, read
from pathlib import Path

import pytest

from dspark.cli import main
from dspark.find import find_checkpoints
from tests.support.configs import BASE, run, with_keys, write_config

EAGLE3_MESSAGE = (
    "this is an EAGLE-3 draft: it drafts token by token from fused features, "
    "and no lane here runs it"
)
EAGLE3 = {"architectures": ["Qwen3Eagle3Model"], "model_type": "qwen3"}


@pytest.fixture
def lane(tmp_path: Path) -> Path:
    return write_config(tmp_path / "lane", BASE)


@pytest.fixture
def refused(tmp_path: Path) -> Path:
    return write_config(tmp_path / "refused", EAGLE3)


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


def test_explain_of_a_rule_by_id_and_by_name_says_the_same(
    capsys: pytest.CaptureFixture[str],
) -> None:
    outputs = []
    for word in ("R028", "eagle3"):
        assert 0 == main(["explain", word])
        outputs.append(capsys.readouterr().out)

    assert outputs[0] == outputs[1]
    assert "R028 eagle3" in outputs[0]
    assert "message: this is an EAGLE-3 draft" in outputs[0]
    assert "https://github.com/sgl-project/sglang/pull/21272" in outputs[0]


@pytest.mark.parametrize("word", ["E001", "config-empty", "D023", "overlap"])
def test_explain_knows_input_errors_and_diagnostics(
    word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert 0 == main(["explain", word])
    assert word in capsys.readouterr().out


def test_explain_of_an_unknown_rule_offers_the_nearest(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert 2 == main(["explain", "eagel3"])
    assert "no rule is called `eagel3`; did you mean `eagle3`?" in capsys.readouterr().err


def test_rules_lists_every_rule_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert 0 == main(["rules", "--json"])

    rules = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    names = [rule["name"] for rule in rules]
    assert len(names) == len(set(names))
    assert {"qwen3-dspark-native", "unknown-architecture", "config-empty"} <= set(names)


@pytest.mark.parametrize("form", ["text", "mermaid", "dot", "json"])
def test_every_graph_format_names_every_deciding_rule(
    form: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert 0 == main(["graph", "--format", form])

    output = capsys.readouterr().out
    for rule_id in ("L001", "R000", "R033", "E101"):
        assert rule_id in output


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


def test_no_verb_and_an_unknown_verb_are_usage_errors(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in ([], ["rout"]):
        with pytest.raises(SystemExit) as stop:
            main(arguments)
        assert 2 == stop.value.code
    assert "invalid choice: 'rout'" in capsys.readouterr().err


def test_an_invalid_table_decides_nothing(
    lane: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "drafts.yaml"
    table.write_text("table: x\nfacts: [markow]\nrules: {}\n", encoding="utf-8")

    code = main(["route", "--rules", str(table), str(lane)])

    output = capsys.readouterr().out
    assert 5 == code
    assert f"{table}:2:9: error[D010 unknown-fact]: no fact is called `markow`" in output
    assert "    2 | facts: [markow]" in output
    assert "did you mean `markov`?" in output
    assert "nothing was decided" in output
    assert "lane qwen3-dspark" not in output


def test_standard_input() -> None:
    done = run("--json", "-", stdin=json.dumps(EAGLE3).encode())

    assert (3, b"") == (done.returncode, done.stderr)
    assert "eagle3" == json.loads(done.stdout)["decision"]["name"]


def test_a_reader_that_goes_away_is_no_traceback(lane: Path) -> None:
    command = f"{sys.executable} -m dspark.route --json {' '.join([str(lane)] * 400)} | head -n 1"

    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)

    assert (1, "") == (len(done.stdout.splitlines()), done.stderr)


@pytest.mark.parametrize(
    ("redirect", "code", "words"),
    [
        ("- <&-", 4, ""),
        ("{lane} >&-", 0, ""),
        ("{lane} >/dev/full", 2, "dspark: the output cannot be written: no space left on device"),
    ],
)
def test_closed_and_full_streams_are_no_traceback(
    redirect: str, code: int, words: str, lane: Path
) -> None:
    command = f"{sys.executable} -m dspark.route {redirect.format(lane=lane)}"

    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)

    assert (code, words) == (done.returncode, done.stderr.strip())


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


def test_text_that_cannot_be_printed_is_escaped(tmp_path: Path) -> None:
    """A config may hold terminal escapes, and a folder any bytes: neither reaches the terminal."""
    config = with_keys(BASE, architectures=["\x1b[31mred\u202e"])
    place = write_config(tmp_path / "fo\x1blder-ü", config)

    done = run(place, PYTHONIOENCODING="ascii")

    assert (3, b"") == (done.returncode, done.stderr)
    assert b"\x1b" not in done.stdout
    assert b"`\\x1b[31mred\\u202e`" in done.stdout


@pytest.mark.parametrize(
    ("no_color", "terminal", "coloured"),
    [("", "xterm-256color", True), ("1", "xterm-256color", False), ("", "dumb", False)],
)
def test_colour_only_on_a_terminal_that_wants_it(
    refused: Path, no_color: str, terminal: str, coloured: bool
) -> None:
    leader, follower = pty.openpty()
    environment = {**environ, "NO_COLOR": no_color, "TERM": terminal}
    subprocess.run(
        [sys.executable, "-m", "dspark.route", str(refused)],
        stdout=follower,
        env=environment,
        check=False,
    )
    close(follower)
    output = read(leader, 100_000)
    close(leader)

    assert coloured == (b"\x1b[1;31mrefused" in output)
    assert b"R028 eagle3" in output
    assert b"\x1b" not in run(refused).stdout
