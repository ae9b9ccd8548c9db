"""The schema of a plan: `python -m tests.dspark.test_load_plan --write` rewrites it."""

from __future__ import annotations

import ast
import json
import sys
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import dspark
from dspark import load_plan
from tests.support.configs import with_keys
from tests.support.pairs import (
    TINY,
    TINY_SHAPES,
    TINY_TARGET,
    TINY_ZLAB,
    backbone,
    checkpoint,
    target_shapes,
)

SCHEMA = Path(__file__).resolve().parents[2] / "schemas" / "plan.schema.json"


def generated() -> dict[str, Any]:
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A load plan",
        "description": "What `dspark plan --json` prints for a pair that fits.",
    }
    made = without_titles(dspark.LoadPlan.model_json_schema(mode="serialization"))
    assert isinstance(made, dict)
    for name, part in [("LoadPlan", made), *made["$defs"].items()]:
        for key, text in field_docs()[name].items():
            part["properties"][key]["description"] = text
    return {**made, **head}


@cache
def field_docs() -> dict[str, dict[str, str]]:
    """Class -> field -> the text below it. Pydantic could read them too, at every import."""
    docs: dict[str, dict[str, str]] = {}
    for part in ast.parse(Path(load_plan.__file__).read_text(encoding="utf-8")).body:
        if not isinstance(part, ast.ClassDef):
            continue
        fields = docs.setdefault(part.name, {})
        for field, text in pairwise(part.body):
            if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr):
                assert isinstance(field.target, ast.Name)
                fields[field.target.id] = ast.literal_eval(text.value)
    return docs


def without_titles(part: object) -> object:
    """Pydantic's titles repeat the names; `title` may also be a property, and then has no text."""
    if isinstance(part, list):
        return [without_titles(each) for each in part]
    if not isinstance(part, dict):
        return part
    return {
        key: without_titles(value)
        for key, value in part.items()
        if not (key == "title" and isinstance(value, str))
    }


def test_every_property_is_described() -> None:
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    objects = [schema, *schema["$defs"].values()]

    assert [] == [
        name
        for each in objects
        for name, value in each["properties"].items()
        if not value["description"].endswith(".")
    ]


def test_the_schema_is_fresh() -> None:
    text = SCHEMA.read_text(encoding="utf-8")

    assert json.loads(text) == generated(), "run `python -m tests.dspark.test_load_plan --write`"


@pytest.fixture(scope="module")
def plans(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("pairs")
    own = checkpoint(folder / "own", with_keys(TINY, tie_word_embeddings=True), TINY_SHAPES)
    shapes = backbone(TINY, 3, own_embedding=False, own_head=False)
    shared = checkpoint(folder / "shared", TINY_ZLAB, shapes)
    bare = checkpoint(folder / "bare", TINY_TARGET, None)
    full = checkpoint(folder / "full", TINY_TARGET, target_shapes(TINY_TARGET))
    made = [
        dspark.plan(own, target=full, memory="1GiB"),
        dspark.plan(shared, target=bare),
        dspark.plan(own, target=bare, device="cpu"),
    ]
    return [json.loads(plan.model_dump_json()) for plan in made]


def test_every_plan_is_what_the_schema_says(plans: list[dict[str, Any]]) -> None:
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    assert plans[0]["warnings"]
    assert plans[1]["shared"]

    for document in plans:
        jsonschema.validate(document, schema, cls=jsonschema.Draft202012Validator)


@pytest.mark.parametrize("key", sorted(dspark.LoadPlan.model_fields))
def test_the_schema_misses_nothing(key: str, plans: list[dict[str, Any]]) -> None:
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    document = {name: value for name, value in plans[0].items() if name != key}

    with pytest.raises(jsonschema.ValidationError, match="required"):
        jsonschema.validate(document, schema, cls=jsonschema.Draft202012Validator)


def test_the_schema_knows_no_other_key(plans: list[dict[str, Any]]) -> None:
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    document = plans[0] | {"surprise": 1}

    with pytest.raises(jsonschema.ValidationError, match="surprise"):
        jsonschema.validate(document, schema, cls=jsonschema.Draft202012Validator)


if __name__ == "__main__" and sys.argv[1:] == ["--write"]:
    SCHEMA.write_text(json.dumps(generated(), indent=2) + "\n", encoding="utf-8")
