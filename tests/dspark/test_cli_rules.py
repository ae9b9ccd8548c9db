"""`dspark rules`: every rule in a line."""

from __future__ import annotations

import json

import pytest

from dspark.cli import main


def test_rules_lists_every_rule_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert 0 == main(["rules", "--json"])

    rules = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    names = [rule["name"] for rule in rules]
    assert len(names) == len(set(names))
    assert {"qwen3-dspark-native", "unknown-architecture", "config-empty"} <= set(names)
