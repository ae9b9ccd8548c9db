"""The published configs: each gets its outcome and its rule, wherever its folder lies."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import pytest

from dspark.cli import main
from tests.support.configs import run

CORPUS = Path(__file__).parent.parent / "corpus"
EXPECTED = (CORPUS / "expected.tsv").read_text(encoding="utf-8")
ROWS = list(csv.DictReader(EXPECTED.splitlines(), delimiter="\t"))
MISLEADING = ("eagle3", "dflash_old", "dspark", "mtp", "my-eagle-draft", "gguf", "Qwen3ForCausalLM")


def lines(output: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in output.splitlines()]


def outcome(decision: dict[str, object]) -> tuple[str, str]:
    inner = decision["decision"]
    assert isinstance(inner, dict)
    return ("refusal" if inner["lane"] is None else f"lane:{inner['lane']}", inner["name"])


def test_the_list_of_expectations_covers_the_corpus() -> None:
    folders = sorted(path.parent.name for path in CORPUS.glob("*/config.json"))

    assert folders == [row["config"] for row in ROWS]
    assert len(folders) == 38
    assert all((CORPUS / name / "source.txt").is_file() for name in folders)


def test_every_published_config_gets_its_rule(capsys: pytest.CaptureFixture[str]) -> None:
    expected = {str(CORPUS / row["config"]): (row["outcome"], row["rule_name"]) for row in ROWS}

    code = main(["route", "--json", "--recursive", str(CORPUS)])

    decisions = lines(capsys.readouterr().out)
    assert 3 == code
    assert expected == {str(decision["source"]): outcome(decision) for decision in decisions}


@pytest.mark.parametrize("name", MISLEADING)
def test_the_name_of_the_folder_changes_nothing(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["route", "--json", *(str(CORPUS / row["config"]) for row in ROWS)])
    before = lines(capsys.readouterr().out)
    copies = []
    for row in ROWS:
        copy = tmp_path / row["config"].replace("/", "_") / name
        shutil.copytree(CORPUS / row["config"], copy)
        copies.append(str(copy))

    main(["route", "--json", *copies])

    after = lines(capsys.readouterr().out)
    assert [outcome(decision) for decision in after] == [
        (row["outcome"], row["rule_name"]) for row in ROWS
    ]
    for old, new in zip(before, after, strict=True):
        assert old.pop("source") != new.pop("source")
        assert json.dumps(old) == json.dumps(new)


def test_the_command_a_user_types_decides_the_same() -> None:
    done = run("--json", CORPUS / "deepseek-ai__dspark_qwen3_8b_block7")

    assert (0, b"") == (done.returncode, done.stderr)
    (decision,) = lines(done.stdout.decode())
    assert ("lane:qwen3-dspark", "qwen3-dspark-native") == outcome(decision)
