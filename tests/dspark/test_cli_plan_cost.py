"""`dspark plan --cost`: the cost of a round on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from dspark.cli import main
from tests.support.pairs import TINY, TINY_SHAPES, TINY_TARGET, checkpoint

OK, USAGE = 0, 2


@pytest.fixture
def pair(tmp_path: Path) -> list[str]:
    draft = checkpoint(tmp_path / "draft", TINY, TINY_SHAPES)
    return [str(draft), "--target", str(checkpoint(tmp_path / "target", TINY_TARGET, None))]


def test_the_cost_follows_the_plan(pair: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert OK == main(["plan", *pair])
    plan = capsys.readouterr().out
    assert OK == main(["plan", *pair, "--cost", "--context", "100", "--bandwidth", "0.01"])
    text = capsys.readouterr().out

    assert text.startswith(plan)
    lines = text.removeprefix(plan).splitlines()
    assert "  cost       at 100 positions, batch 1, 4 drafts  (GB: 10^9 bytes)" == lines[0]
    assert ["weights", "caches", "launches", "floor"] == lines[1].split()
    assert ["a", "step", "alone", "0.001", "GB", "0.001", "GB", "60"] == lines[2].split()[:-2]
    assert 9 == len(lines)
    assert lines[-1].startswith("    a round moves as much as 1.")


def test_the_least_time_is_shown_for_a_bandwidth(
    pair: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert OK == main(["plan", *pair, "--cost", "--json", "--context", "100"])
    step = json.loads(capsys.readouterr().out)["step"]["total"]
    assert OK == main(["plan", *pair, "--cost", "--context", "100", "--bandwidth", "0.5"])
    (line,) = [row for row in capsys.readouterr().out.splitlines() if "a step alone" in row]

    assert line.endswith(f"{step / 0.5e6:.3f} ms")


def test_without_a_bandwidth_no_time_is_shown(
    pair: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert OK == main(["plan", *pair, "--cost"])

    assert " ms" not in capsys.readouterr().out


def test_the_json_is_by_its_schema(
    pair: list[str], capsys: pytest.CaptureFixture[str], repository: Path
) -> None:
    assert OK == main(["plan", *pair, "--cost", "--json"])
    found = json.loads(capsys.readouterr().out)
    schema = json.loads((repository / "schemas/cost.schema.json").read_text(encoding="utf-8"))

    Draft202012Validator(schema).validate(found)
    # The default is 2048 positions, or what fits: the draft is asked up to 200 and takes 4.
    assert 196 == found["context"]
    for part in ("step", "verify", "extend", "block", "walk", "round"):
        assert (
            sum(found[part][key] for key in ("weights", "rows", "caches")) == found[part]["total"]
        )


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--bandwidth", "100"], "--bandwidth says nothing without --cost"),
        (["--context", "100"], "--context says nothing without --cost"),
        (["--cost", "--json", "--bandwidth", "1"], "says nothing with --json, which holds bytes"),
        (["--cost", "--context", "197"], "no room behind 197 positions: 196 is the most"),
        (["--cost", "--max-seq", "3"], "a round does not fit into the 3 tokens of this plan"),
    ],
)
def test_options_that_do_not_go_together(
    words: list[str], says: str, pair: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert USAGE == main(["plan", *pair, *words])

    output = capsys.readouterr()
    assert says in output.err
    assert "cost       at" not in output.out


@pytest.mark.parametrize("text", ["0", "-1", "1e3", "nan", "x", "", "1.", "٣", "0.0"])
def test_a_bandwidth_is_a_plain_number(
    text: str, pair: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(["plan", *pair, "--cost", "--bandwidth", text])

    assert USAGE == exit_.value.code
    assert f"`{text}` is not a number of GB/s above 0" in capsys.readouterr().err
