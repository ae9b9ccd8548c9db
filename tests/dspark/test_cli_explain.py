from __future__ import annotations

import pytest

from dspark.cli import main
from dspark.cli_explain import explain_rule
from dspark.findings import catalogue
from dspark.routing import default_table
from dspark.verb import Usage


def explained(wanted: str) -> str:
    lines = explain_rule(default_table(), wanted)
    return "\n".join("".join(s if isinstance(s, str) else s[0] for s in line) for line in lines)


@pytest.mark.parametrize(
    ("wanted", "head"),
    [
        ("L001", "L001 qwen3-dspark-native"),
        ("not-a-draft", "R030 not-a-draft"),
        ("config-empty", "E001 config-empty"),
        ("D001", "D001 yaml-syntax  (a mistake in a rules file)"),
        ("T009", "T009 tensor-missing  (a refusal of a checkpoint's contents)"),
        ("ignored-tensor", "W002 ignored-tensor  (a warning of a checkpoint's contents)"),
    ],
)
def test_a_rule_of_any_file_is_found_by_id_and_by_name(wanted: str, head: str) -> None:
    assert explained(wanted).startswith(head)


def test_every_wording_of_a_finding_is_shown() -> None:
    text = explained("tensor-missing")

    entry = catalogue().entries["tensor-missing"]
    assert 2 == len(entry.forms) == text.count("  message: ")
    assert f"  why: {entry.why}" in text
    assert 1 == text.count("  help: ")


def test_a_wording_with_a_help_of_its_own_shows_it() -> None:
    text = explained("device-unavailable")

    helps = {form.help.text for form in catalogue().entries["device-unavailable"].forms}
    assert 3 == len(helps) == text.count("  help: ")
    assert all(f"  help: {each}" in text for each in helps)


@pytest.mark.parametrize(
    ("wanted", "meant"),
    [("tensor-mising", "tensor-missing"), ("not-a-daft", "not-a-draft")],
)
def test_a_misspelt_rule_is_guessed_at(wanted: str, meant: str) -> None:
    with pytest.raises(Usage, match=f"no rule is called `{wanted}`; .*`{meant}`"):
        explain_rule(default_table(), wanted)


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
