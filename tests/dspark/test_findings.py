"""The catalogue of findings: every one is raised or named, filled completely, and told apart."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import dspark
from dspark.compile import compile_table
from dspark.contract_reader import load_contract, load_target_contract
from dspark.diagnostics import catalogue as diagnostics
from dspark.findings import catalogue, finding
from dspark.findings_check import RAISED, prove_findings

ISSUE = [
    "missing-key",
    "bad-type",
    "out-of-range",
    "conflicting-keys",
    "inconsistent-config",
    "unsupported-rope",
    "unsupported-attention",
    "unsupported-head",
    "unsupported-activation",
    "quantized-draft",
    "tensor-missing",
    "tensor-unexpected",
    "tensor-shape",
    "tensor-dtype",
    "tensor-duplicate",
    "tensor-value",
    "weights-missing",
    "shard-missing",
    "shard-truncated",
    "shard-trailing-bytes",
    "shard-corrupt",
    "shard-is-lfs-pointer",
    "shard-unreadable",
    "index-invalid",
    "tensor-too-large",
    "target-mismatch",
    "unsupported-target",
    "target-is-a-draft",
    "over-budget",
    "suspicious-mask-token",
    "ignored-tensor",
    "tokenizer-unverified",
    "unread-key",
]


def contracts() -> list[object]:
    return [load_target_contract().contract, *map(load_contract, compile_table().lanes)]


def calls() -> Iterator[tuple[str, set[str] | None]]:
    """(name, placeholders filled, or None if not written out) of every finding in the code."""
    for file in Path(dspark.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or not node.args:
                continue
            called = getattr(node.func, "id", getattr(node.func, "attr", ""))
            name = node.args[0]
            if not isinstance(name, ast.Constant) or name.value not in catalogue().entries:
                continue
            if called in ("finding", "_add", "Unreadable") and len(node.args) == 1:
                given = {word.arg for word in node.keywords if word.arg is not None}
                yield name.value, given if len(given) == len(node.keywords) else None
            elif called == "Finding":
                yield name.value, _keys(node.args[1])


def _keys(node: ast.expr) -> set[str] | None:
    if not isinstance(node, ast.Dict) or not all(isinstance(k, ast.Constant) for k in node.keys):
        return None
    return {str(key.value) for key in node.keys if isinstance(key, ast.Constant)}


def test_the_names_of_the_contract_are_there() -> None:
    assert set() == set(ISSUE) - set(catalogue().entries)


def test_nothing_is_wrong_with_the_file() -> None:
    assert () == prove_findings([load_target_contract().contract]).diagnostics()[:0]
    assert () == prove_findings(contracts()).diagnostics()  # type: ignore[arg-type]


def test_what_the_code_raises_is_what_it_is_said_to_raise() -> None:
    called = {name for name, _ in calls()}
    literal = {
        node.value
        for file in Path(dspark.__file__).parent.glob("*.py")
        if file.stem != "findings_check"
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }

    assert set() == called - RAISED
    assert set() == RAISED - literal


def test_every_call_fills_a_wording_exactly() -> None:
    found = [(name, given) for name, given in calls() if given is not None]

    assert 12 <= len(found)
    for name, given in found:
        forms = [set(form.placeholders) for form in catalogue().entries[name].forms]
        assert given - {"source"} in forms, (name, given, forms)


def test_ids_are_unique_and_belong_to_their_stage() -> None:
    entries = catalogue().entries.values()
    ids = [entry.rule_id for entry in entries]
    others = [*compile_table().rules, *(rule_id for rule_id, _, _ in diagnostics().values())]

    assert len(set(ids)) == len(ids)
    assert set() == set(ids) & set(others)
    assert {"C", "T", "P", "B", "W", "X"} == {rule_id[0] for rule_id in ids}
    assert [entry.warning for entry in entries] == [rule_id[0] == "W" for rule_id in ids]


def test_messages_keep_to_their_grammar() -> None:
    for entry in catalogue().entries.values():
        for form in entry.forms:
            assert not form.message.text.endswith("."), entry.name
            assert not form.help.text.endswith("."), entry.name
            assert form.message.text[0] in "`{" or form.message.text[0].islower()
            assert form.help.text[0] in "`{" or form.help.text[0].islower()


def test_every_phrase_is_used() -> None:
    sources = "".join(
        (Path(dspark.__file__).parent / name).read_text(encoding="utf-8")
        for name in ("canonical.py", "demands.py", "handoff_demands.py", "places.py", "typed.py")
    )

    assert [] == [name for name in catalogue().phrases if f'"{name}"' not in sources]


def test_a_checkpoints_own_words_are_cut_and_ours_are_not() -> None:
    found = finding("bad-type", key="k", expected="x" * 500, got="y\n" * 500)

    assert "x" * 500 in found.message
    assert "y\\n" * 30 in found.message
    assert "y\\n" * 60 not in found.message
    assert "\n" not in found.message


def test_no_finding_says_where_the_checkpoint_lies() -> None:
    found = finding("weights-missing", source="/some/where", reason="r", remedy="add it")

    assert {"reason": "r", "remedy": "add it"} == found.to_json()["values"]
    assert "/some/where" not in str(found)


def test_a_value_no_wording_has_is_our_own_mistake() -> None:
    with pytest.raises(AssertionError):
        finding("missing-key", key="k")
