"""The schemas of parity packs, their cases and what the two verbs print take what is there."""

from __future__ import annotations

import copy
import json
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from dspark.cli import main
from dspark.compile import compile_table
from dspark.diagnostics import Report
from dspark.document import Document
from dspark.parity import hold_together
from dspark.parity_check import check_pack
from dspark.parity_compile import CASES, pack_files
from dspark.parity_fact_reader import FACT_KEYS
from dspark.parity_facts import SHAPES
from dspark.parity_reader import PACK_KEYS, RULE_KEYS
from tests.support.packs import SMALL, case_lines, small_pack

SCHEMAS = Path(str(import_module("dspark.schemas").__file__)).parent
OURS = ("engines", "parity", "parity-case", "parity-pack")


def schema(name: str) -> dict[str, Any]:
    loaded = json.loads((SCHEMAS / f"{name}.schema.json").read_text(encoding="utf-8"))
    assert isinstance(loaded, dict)
    return loaded


def problems(name: str, value: object) -> list[str]:
    found = Draft202012Validator(schema(name)).iter_errors(value)
    return [f"{list(error.path)}: {error.message}" for error in found]


def data(file: Path) -> Any:
    document = Document(file.read_bytes(), str(file), Report())
    assert document.root is not None
    return document.data(document.root)


@pytest.mark.parametrize("name", OURS)
def test_a_schema_is_one_and_says_what_it_is_of(name: str) -> None:
    loaded = schema(name)

    Draft202012Validator.check_schema(loaded)
    assert loaded["title"]
    assert loaded["description"].endswith(".")


@pytest.mark.parametrize("file", pack_files(), ids=lambda file: file.name)
def test_the_packs_and_cases_that_ship_are_valid(file: Path) -> None:
    first = file.read_text(encoding="utf-8").splitlines()[0]
    lines = file.with_name(file.name.removesuffix(".yaml") + CASES).read_text(encoding="utf-8")

    assert [] == problems("parity-pack", data(file))
    assert [] == [
        found for line in lines.splitlines() for found in problems("parity-case", json.loads(line))
    ]
    assert "# yaml-language-server: $schema=../../schemas/parity-pack.schema.json" == first


def test_the_pack_schema_lists_what_the_code_does() -> None:
    properties = schema("parity-pack")["properties"]
    (rule,) = properties["rules"]["patternProperties"].values()
    fact = properties["facts"]["additionalProperties"]

    assert set(PACK_KEYS) == set(properties)
    assert set(RULE_KEYS) == set(rule["properties"])
    assert set(FACT_KEYS) == set(fact["properties"])
    assert set(SHAPES) == set(fact["properties"]["as"]["enum"])


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("engin",), "x"),
        (("rules", "L001"), {}),
        (("rules", "X002", "swallow"), "plain"),
        (("rules", "X002", "before"), ["X001"]),
        (("facts", "rank", "as"), "width"),
        (("facts", "rank", "kye"), "x"),
        (("commands",), []),
    ],
)
def test_what_a_schema_can_tell_is_refused(
    path: tuple[str, ...], value: object, tmp_path: Path
) -> None:
    file = tmp_path / "small.yaml"
    file.write_text(SMALL, encoding="utf-8")
    pack = data(file)
    assert [] == problems("parity-pack", pack)
    inner = pack
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = value

    assert problems("parity-pack", pack)


def test_what_engines_prints_is_valid(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "config.json").write_text("[", encoding="utf-8")
    corpus = sorted((Path(__file__).parents[1] / "corpus").glob("*/config.json"))

    main(["engines", "--json", str(tmp_path), *map(str, corpus)])

    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert 1 + len(corpus) == len(found)
    assert [] == [problem for each in found for problem in problems("engines", each)]
    assert any(answer["traps"] for each in found for answer in each["engines"])
    fewer = copy.deepcopy(found[-1])
    del fewer["engines"][0]["rule_id"]
    assert problems("engines", fewer)


def test_what_parity_finds_is_valid(tmp_path: Path) -> None:
    more = "divergences:\n  - {theirs: [X002], ours: [lanes], why: meant}\n"
    found = hold_together(compile_table(), small_pack(tmp_path, SMALL + more)).to_json()

    assert found["undeclared"]
    assert found["stale"]
    assert [] == problems("parity", found)
    del found["declared"]
    assert problems("parity", found)


def test_what_check_finds_in_packs_is_valid(tmp_path: Path) -> None:
    lines = case_lines([{"rule": "X001", "config": {"rank": 8}, "unknown": ""}])
    found = check_pack(small_pack(tmp_path, lines=lines)).to_json()
    packs = schema("check")["properties"]["packs"]

    assert found["failures"]
    assert found["uncovered"]
    judge = Draft202012Validator(packs)
    assert [] == [error.message for error in judge.iter_errors([found])]
    del found["mutants"]
    assert not judge.is_valid([found])
