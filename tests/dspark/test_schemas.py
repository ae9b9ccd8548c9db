"""The schemas say what the files hold and what the command line prints, and nothing looser."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from dspark.cases import SOURCE_KINDS
from dspark.check import check
from dspark.cli import main
from dspark.compile import compile_table
from dspark.diagnostics import Report
from dspark.document import Document
from dspark.facts import FACTS
from dspark.files import rules_file
from dspark.messages import ROUTE_PLACEHOLDERS
from tests.support.configs import BASE, Config, with_keys, write_config

SCHEMAS = Path(str(import_module("dspark.schemas").__file__)).parent
CASES = Path(__file__).parents[1] / "cases"
OURS = (
    "bench",
    "check",
    "contract",
    "contracts",
    "decision",
    "diagnostics",
    "difference",
    "findings",
    "generate",
    "graph",
    "handoff",
    "handoff-table",
    "messages",
    "rule",
    "table",
    "verify",
)

NOT_YAML = {
    "empty-table--no-content",
    "yaml-feature",
    "yaml-feature--tag",
    "yaml-syntax",
    "yaml-syntax--two-documents",
}
"""There is nothing to validate."""

NOT_SHAPE = {
    "contained-message": "compares two messages",
    "dead-rule": "needs the analysis",
    "default-with-when": "the default is known by an ID elsewhere",
    "duplicate-key": "gone once the YAML is data",
    "duplicate-message": "compares two messages",
    "duplicate-name": "compares two rules",
    "duplicate-name--tombstone": "compares a rule with a tombstone",
    "idle-before": "needs the analysis",
    "idle-before--itself": "the ID is the rule's own key",
    "missing-table-key--fact": "the facts are listed elsewhere",
    "overlap": "needs the analysis",
    "overlap--circle": "needs the analysis",
    "retired-id": "the tombstone is elsewhere",
    "said-by-another": "compares two messages",
    "shadowed-rule": "needs the analysis",
    "table-too-large": "needs the analysis",
    "unknown-before": "the rules are listed elsewhere",
    "unknown-default": "the rules are listed elsewhere",
    "unknown-lane": "the lanes are listed elsewhere",
    "unknown-lane--in-a-test": "the lanes are listed elsewhere",
    "unused-fact": "counts uses",
    "unused-lane": "counts uses",
    "weak-tests": "the table compiles",
    "yaml-feature--merge": "gone once the YAML is data",
}
"""Broken tables that no schema could refuse, and why."""


def schema(name: str) -> dict[str, Any]:
    loaded = json.loads((SCHEMAS / f"{name}.schema.json").read_text(encoding="utf-8"))
    assert isinstance(loaded, dict)
    return loaded


def validator(name: str) -> Draft202012Validator:
    return Draft202012Validator(schema(name))


def problems(name: str, value: object) -> list[str]:
    return [f"{list(e.path)}: {e.message}" for e in validator(name).iter_errors(value)]


def data(file: Path) -> Any:
    """A rules file as the compiler reads it: test inputs typed as JSON, nothing resolved."""
    document = Document(file.read_bytes(), str(file), Report())
    assert document.root is not None
    return document.data(document.root)


# --------------------------------------------------------------------------- the schemas alone


@pytest.mark.parametrize("name", OURS)
def test_a_schema_is_one_and_says_what_it_is_of(name: str) -> None:
    loaded = schema(name)

    Draft202012Validator.check_schema(loaded)
    assert "https://json-schema.org/draft/2020-12/schema" == loaded["$schema"]
    assert loaded["title"]
    assert loaded["description"].endswith(".")


def objects(part: Any) -> Iterator[dict[str, Any]]:
    if isinstance(part, dict):
        if part.get("type") == "object" and ("properties" in part or "patternProperties" in part):
            yield part
        for value in part.values():
            yield from objects(value)
    elif isinstance(part, list):
        for value in part:
            yield from objects(value)


@pytest.mark.parametrize("name", OURS)
def test_every_object_is_closed_and_every_property_described(name: str) -> None:
    found = list(objects(schema(name)))

    assert found
    for part in found:
        assert part["additionalProperties"] is False, part
        for key, value in part.get("properties", {}).items():
            assert "description" in value or "$ref" in value, key


def test_the_table_schema_lists_what_the_code_does() -> None:
    table = schema("table")
    conditions = table["$defs"]["facts_and_cells"]["properties"]
    closed = {
        name: [cell for option in table["$defs"][name]["anyOf"] for cell in option.get("enum", ())]
        for name, fact in FACTS.items()
        if fact.cells is not None
    }
    pattern = table["$defs"]["refusal_rule"]["properties"]["refuse"]["pattern"]
    inputs = [part["if"]["required"][0] for part in table["$defs"]["input"]["allOf"]]

    assert list(FACTS) == list(conditions)
    assert {
        name: [cell or "ABSENT" for cell in fact.cells]
        for name, fact in FACTS.items()
        if fact.cells is not None
    } == closed
    assert ROUTE_PLACEHOLDERS == set(pattern.partition("\\{(")[2].partition(")\\}")[0].split("|"))
    assert list(SOURCE_KINDS) == inputs


# ------------------------------------------------------------------------------- rules files


@pytest.mark.parametrize(("file", "name"), [("drafts", "table"), ("messages", "messages")])
def test_the_files_that_ship_are_valid(file: str, name: str) -> None:
    path = rules_file(f"{file}.yaml")

    assert [] == problems(name, data(path))
    first = path.read_text(encoding="utf-8").splitlines()[0]
    assert f"# yaml-language-server: $schema=../schemas/{name}.schema.json" == first


def test_a_broken_table_is_refused_wherever_a_schema_can_tell() -> None:
    tables = {file.parent.name: file for file in CASES.glob("*/table.yaml")}
    accepted = {
        name
        for name, file in tables.items()
        if name not in NOT_YAML and not problems("table", data(file))
    }

    assert tables.keys() >= NOT_YAML
    assert set(NOT_SHAPE) == accepted


def small() -> dict[str, Any]:
    table = data(CASES / "table-too-large" / "table.yaml")
    assert [] == problems("table", table)
    assert isinstance(table, dict)
    return table


@pytest.mark.parametrize(
    "condition",
    [
        *({fact: "PRESENT"} for fact in FACTS),
        *({fact: "ABSENT"} for fact in FACTS if fact != "packaging"),
        {"markov": ["positive", "ABSENT"]},
        {"markov": {"not": ["zero"]}},
        {"markov": {"not": "PRESENT"}},
        [{"markov": "zero"}, {"architecture": {"not": "ABSENT"}}],
    ],
)
def test_every_kind_of_condition_is_valid(condition: object) -> None:
    table = small()
    table["rules"]["L001"]["when"] = condition

    assert [] == problems("table", table)


@pytest.mark.parametrize(
    "given",
    [
        {"hex": "0"},
        {"text": 5},
        {"path": ["a"]},
        {"repeat": ["x"]},
        {"repeat": ["x", -1]},
        {"folder": {"/etc/motd": "x"}},
        {"folder": {"../motd": "x"}},
        {"folder": {"a": ["b"]}},
        {"hub": 404},
        {"hub": {"status": 404}},
        {"hub": {"status": 200, "error": None}},
        {"hub": {"status": None, "error": "GatedRepo"}},
        {"hub": {"status": 404, "error": 7}},
    ],
)
def test_the_input_of_a_test_has_the_shape_of_its_kind(given: dict[str, object]) -> None:
    table = small()
    table["rules"]["L001"]["tests"].append({"miss": given})

    assert problems("table", table)

    # The same key among others is a key of a config.json, of which a schema knows nothing.
    table["rules"]["L001"]["tests"][-1] = {"miss": {**given, "model_type": "qwen3"}}
    assert [] == problems("table", table)


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"config": []},
        {"text": ""},
        {"hex": "00ff"},
        {"path": "owner/name"},
        {"repeat": ["x", 0]},
        {"folder": {}},
        {"folder": {"a/b..c": "x"}},
        {"hub": {"status": 404, "error": None}},
        {"hub": {"status": 503, "error": "RepoNotFound"}},
        {"hub": {"status": None, "error": None}},
    ],
)
def test_every_input_that_compiles_is_valid(given: dict[str, object]) -> None:
    table = small()
    table["rules"]["L001"]["tests"].append({"miss": given})

    assert [] == problems("table", table)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("rules",), {}),
        (("facts",), []),
        (("facts",), ["markov", "packaging"]),
        (("facts",), ["markov", "markov"]),
        (("lanes", "block"), ""),
        (("default",), "no-rule"),
        (("retired",), {"R7": {"name": "old", "in": "0.1"}}),
        (("retired",), {"R007": {"name": "old"}}),
        (("rules", "L001", "when"), {}),
        (("rules", "L001", "when"), []),
        (("rules", "L001", "when"), {"markov": []}),
        (("rules", "L001", "when"), {"markov": ["PRESENT"]}),
        (("rules", "L001", "when"), {"markov": {"not": "zero", "and": "positive"}}),
        (("rules", "L001", "before"), ["no-rule"]),
        (("rules", "L001", "tests"), []),
        (("rules", "R000", "tests", 0, "hit"), []),
        (("rules", "R000", "refuse"), "  "),
        (("rules", "R000", "help"), "{path}"),
        (("rules", "R000", "refs"), {}),
    ],
)
def test_a_table_of_another_shape_is_not_valid(path: tuple[Any, ...], value: object) -> None:
    table = small()
    at(table, path[:-1])[path[-1]] = value

    assert problems("table", table)


def test_a_message_has_no_routing_keys() -> None:
    messages = data(rules_file("messages.yaml"))
    rule = next(iter(messages["rules"].values()))
    for key, value in (("when", {"markov": "zero"}), ("lane", "x"), ("before", ["E001"])):
        rule[key] = value
        assert problems("messages", messages)
        del rule[key]

    assert [] == problems("messages", messages)


# -------------------------------------------------------------------- what the commands print


class Printed:
    """Every JSON document of one schema that these commands print."""

    def __init__(self, name: str, *documents: object) -> None:
        self.name = name
        self.documents = documents


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    top = tmp_path_factory.mktemp("checkpoints")
    configs: dict[str, Config | str] = {
        "lane": BASE,
        "refused": {"architectures": ["Qwen3Eagle3Model"], "model_type": "qwen3"},
        "conflict": with_keys(BASE, architectures=["Qwen3DSparkModel", "Qwen3Eagle3Model"]),
        "nothing-said": {},
        "unreadable": "{",
        "bad-keys": with_keys(BASE, head_dim=1.5, block_size=-3),
    }
    return [str(write_config(top / name, config)) for name, config in configs.items()]


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A table and an edit of it, which change a decision that a config shows and one of a GGUF."""
    old = CASES / "table-too-large" / "table.yaml"
    new = tmp_path_factory.mktemp("tables") / "new.yaml"
    text = old.read_text(encoding="utf-8")
    rule = (
        "  R001:\n    name: packed\n    when: {packaging: gguf}\n    refuse: a packed draft\n"
        "    why: none is published\n    tests: [{hit: {text: GGUF}, says: a packed draft}]\n"
        "  R000:\n"
    )
    for before, after in (
        ("facts: [", "facts: [packaging, "),
        ("  R000:\n", rule),
        ("markov: positive}", "markov: [positive, invalid]}"),
    ):
        assert 1 == text.count(before)
        text = text.replace(before, after)
    new.write_text(text, encoding="utf-8")
    return str(old), str(new)


COMMANDS = [
    ("decision", ["route", "--json", "CHECKPOINTS"], 4),
    ("decision", ["route", "--json", "--check", "CHECKPOINTS"], 4),
    ("check", ["check", "--json", "CASE weak-tests"], 1),
    ("check", ["check", "--json", "CASE table-too-large"], 0),
    ("check", ["check", "--json", "NEW"], 1),
    ("diagnostics", ["check", "--json", "CASE many-mistakes"], 5),
    ("diagnostics", ["check", "--json", "CASE gap"], 5),
    ("diagnostics", ["check", "--json", "CASE yaml-syntax"], 5),
    ("diagnostics", ["route", "--json", "CHECKPOINTS", "--rules", "CASE overlap"], 5),
    ("difference", ["diff", "--json", "OLD", "NEW"], 1),
    ("rule", ["rules", "--json"], 0),
    ("graph", ["graph", "--format", "json"], 0),
    ("graph", ["graph", "--format", "json", "--rules", "CASE table-too-large"], 0),
]
IDS = [" ".join(command) for _, command, _ in COMMANDS]


@pytest.fixture
def printed(
    request: pytest.FixtureRequest,
    checkpoints: list[str],
    tables: tuple[str, str],
    capsys: pytest.CaptureFixture[str],
) -> Printed:
    name, words, code = request.param
    arguments: list[str] = []
    for word in words:
        if word.startswith("CASE "):
            arguments.append(str(CASES / word.removeprefix("CASE ") / "table.yaml"))
        else:
            named = {"CHECKPOINTS": checkpoints, "OLD": tables[:1], "NEW": tables[1:]}
            arguments += named.get(word, [word])
    assert code == main(arguments)
    output = capsys.readouterr().out
    if name == "graph":
        return Printed(name, json.loads(output))
    return Printed(name, *map(json.loads, output.splitlines()))


@pytest.mark.parametrize("printed", COMMANDS, ids=IDS, indirect=True)
def test_what_is_printed_is_valid(printed: Printed) -> None:
    assert printed.documents
    for document in printed.documents:
        assert [] == problems(printed.name, document)


OPEN = {"values", "nodes"}
"""Keys whose value is a mapping of names of its own."""


def edits(part: Any, path: tuple[object, ...] = ()) -> Iterator[tuple[tuple[object, ...], str]]:
    """(path of an object, key) for every key of every closed object in a document."""
    if isinstance(part, dict):
        for key, value in part.items():
            if not (path and path[-1] in OPEN) and not (path and path[-1] == "facts"):
                yield path, key
            if key != "values":
                yield from edits(value, (*path, key))
    elif isinstance(part, list):
        for number, value in enumerate(part):
            yield from edits(value, (*path, number))


def at(document: Any, path: tuple[object, ...]) -> Any:
    for step in path:
        document = document[step]
    return document


@pytest.mark.parametrize("printed", COMMANDS, ids=IDS, indirect=True)
def test_a_key_too_few_or_too_many_is_not(printed: Printed) -> None:
    document = max(printed.documents, key=lambda each: len(json.dumps(each)))
    found = list(dict.fromkeys(edits(document)))[:25]
    judge = validator(printed.name)

    assert found
    for path, key in found:
        fewer, more = copy.deepcopy(document), copy.deepcopy(document)
        del at(fewer, path)[key]
        at(more, path)[f"{key}_"] = None
        assert not judge.is_valid(fewer), (path, key)
        assert not judge.is_valid(more), (path, key)


def test_a_survivor_that_no_config_shows_has_no_witness() -> None:
    report = check(compile_table(CASES / "weak-tests" / "table.yaml"))
    survivor = report.score.survivors[0]
    unseen = survivor._replace(difference=survivor.difference._replace(witness=""))

    found = report._replace(score=report.score._replace(survivors=(unseen,))).to_json()

    assert [] == problems("check", found)


def test_what_is_found_in_contracts_is_valid_alone_and_beside_the_table(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert 0 == main(["check", "--json", str(rules_file("lanes") / "qwen3-dflash.yaml")])
    contracts = json.loads(capsys.readouterr().out)
    place = {"file": "rules/lanes/qwen3-dflash.yaml", "line": 1}
    contracts["failures"].append({**place, "problem": "refused, and the test says it fits"})
    contracts["mutants"]["survived"].append({**place, "edit": "drop the key `block_size`"})
    table = check(compile_table(CASES / "weak-tests" / "table.yaml")).to_json()

    assert [] == problems("contracts", contracts)
    assert [] == problems("check", table | {"contracts": contracts})
    for path, key in edits(contracts):
        fewer = copy.deepcopy(contracts)
        del at(fewer, path)[key]
        assert problems("contracts", fewer), (path, key)
        assert problems("check", table | {"contracts": fewer}), (path, key)


def test_a_decision_is_a_lane_or_a_refusal(checkpoints: list[str]) -> None:
    table = compile_table()
    lane, refused = (
        table.route(json.loads(Path(place, "config.json").read_text(encoding="utf-8"))).to_json()
        for place in checkpoints[:2]
    )
    answers: list[Any] = [lane["decision"], refused["decision"]]
    assert [] == problems("decision", lane) + problems("decision", refused)

    answers[0]["refusal"] = answers[1]["refusal"]
    answers[1]["refusal"] = None

    assert problems("decision", lane)
    assert problems("decision", refused)


def test_a_change_that_no_config_shows_has_no_witness(
    tables: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    main(["diff", "--json", *tables])

    changes = [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    assert {"R001": None, "L001": str} == {
        change["new"]["rule_id"]: change["witness"] and str for change in changes
    }
