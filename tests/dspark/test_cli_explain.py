from __future__ import annotations

import pytest

from dspark.cli_explain import NoSuchRule, explain_rule
from dspark.findings import catalogue
from dspark.routing import default_table


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


@pytest.mark.parametrize(
    ("wanted", "meant"),
    [("tensor-mising", "tensor-missing"), ("not-a-daft", "not-a-draft")],
)
def test_a_misspelt_rule_is_guessed_at(wanted: str, meant: str) -> None:
    with pytest.raises(NoSuchRule, match=f"no rule is called `{wanted}`; .*`{meant}`"):
        explain_rule(default_table(), wanted)
