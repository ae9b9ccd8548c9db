"""What only a loader finds out is refused by an ID, as by every other stage."""

from __future__ import annotations

from pathlib import Path

import pytest

import dspark
from dspark.findings import catalogue
from dspark.loader_findings import _STAGES
from tests.support.configs import BASE, write_config


def test_a_function_is_no_module() -> None:
    # A module of the function's name would take its place once it is imported.
    assert callable(dspark.load_refusal)


@pytest.mark.parametrize("name", _STAGES)
def test_a_loader_refuses_by_an_id(name: str, tmp_path: Path) -> None:
    decision = dspark.route(write_config(tmp_path, BASE))
    assert "qwen3-dspark" == decision.lane
    entry = catalogue().entries[name]
    values = {placeholder: f"some {placeholder}" for placeholder in entry.forms[0].placeholders}

    refused = dspark.load_refusal(decision, name, **values).decision

    assert isinstance(refused, dspark.Verdict)
    assert (entry.rule_id, None, str(tmp_path)) == (refused.rule_id, refused.lane, refused.source)
    assert {"T": "tensors", "B": "budget"}[entry.rule_id[0]] == refused.stage
    assert refused.refusal is not None
    assert [name] == [finding.name for finding in refused.findings]
    for value in values.values():
        assert value in refused.refusal.message + refused.refusal.help


def test_a_refusal_of_the_target_takes_its_place(tmp_path: Path) -> None:
    target = {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3"}
    decision = dspark.route(write_config(tmp_path, target))
    assert "R030" == decision.rule_id

    refused = dspark.load_refusal(decision, "tokenizer-missing").decision

    assert "T017" == refused.rule_id


def test_a_finding_of_another_stage_is_none_of_a_loaders(tmp_path: Path) -> None:
    decision = dspark.route(write_config(tmp_path, BASE))

    with pytest.raises(ValueError, match="`over-budget` is not for a loader to find"):
        dspark.load_refusal(decision, "over-budget")
