"""The schemas of contracts and findings take what ships, and refuse what a schema can tell."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from dspark.contract_demands import KINDS
from dspark.contract_tensors import NEEDS
from dspark.diagnostics import Report
from dspark.document import Document
from dspark.files import rules_file
from dspark.headers import DTYPE_BITS
from dspark.typed import TYPES

SCHEMAS = Path(str(import_module("dspark.schemas").__file__)).parent
CASES = Path(__file__).parents[1] / "contract_cases"
SHIPPED = [
    *sorted(rules_file("lanes").glob("*.yaml")),
    *sorted(rules_file("parts").glob("*.yaml")),
    *sorted(rules_file("targets").glob("*.yaml")),
]

NEEDS_THE_READER = {
    "bad-check",
    "bad-default",
    "bad-dimension",
    "bad-range--halves",
    "bad-range--reversed",
    "contained-message",
    "declared-twice",
    "duplicate-key",
    "duplicate-message",
    "duplicate-name",
    "failing-test",
    "idle-key--placeholder",
    "unknown-name--default",
    "unknown-name--dimension",
    "unknown-name--finding",
    "unknown-name--found",
    "unknown-name--key-of-a-check",
    "unknown-name--lane",
    "unknown-name--part",
    "unknown-name--rule",
    "unknown-name--shared",
    "unknown-name--target-key",
    "unknown-name--tensor",
    "unknown-name--warning",
    "unknown-placeholder",
    "unlisted-rule",
    "unusable-finding",
    "unused-finding",
    "weak-tests",
    "wrong-shape--layer",
    "wrong-shape--minus",
    "wrong-shape--when",
}
"""Mistakes that show only against another name, type or file."""


def validator(name: str) -> Draft202012Validator:
    schema = json.loads((SCHEMAS / f"{name}.schema.json").read_text(encoding="utf-8"))
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


def data(file: Path) -> Any:
    document = Document(file.read_bytes(), str(file), Report())
    assert document.root is not None
    return document.data(document.root)


def errors(name: str, value: object) -> list[str]:
    return [error.message for error in validator(name).iter_errors(value)]


@pytest.mark.parametrize("file", SHIPPED, ids=[file.stem for file in SHIPPED])
def test_the_contracts_that_ship_are_valid(file: Path) -> None:
    assert [] == errors("contract", data(file))


def test_the_findings_that_ship_are_valid() -> None:
    assert [] == errors("findings", data(rules_file("findings.yaml")))


@pytest.mark.parametrize(
    "case", sorted(folder.name for folder in CASES.iterdir() if folder.name != "parts")
)
def test_a_broken_file_is_refused_wherever_a_schema_can_tell(case: str) -> None:
    broken = data(CASES / case / "contract.yaml")
    name = "findings" if "table" in broken else "contract"
    excused = {case, case.partition("--")[0]} & NEEDS_THE_READER

    assert bool(excused) == ([] == errors(name, broken)), errors(name, broken)


def test_the_schema_lists_what_the_code_does() -> None:
    defs = json.loads((SCHEMAS / "contract.schema.json").read_text(encoding="utf-8"))["$defs"]
    kinds = {check["required"][0] for check in defs["check"]["oneOf"]}

    assert set(KINDS) == kinds
    assert list(TYPES) == defs["key"]["properties"]["type"]["enum"]
    assert sorted(NEEDS) == sorted(defs["tensor"]["properties"]["need"]["enum"])
    assert sorted(DTYPE_BITS) == sorted(defs["tensor"]["properties"]["dtypes"]["items"]["enum"])
