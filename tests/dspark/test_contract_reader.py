"""Every way a contract or the findings can be wrong: a broken file and the exact words it gets.

`tests/contract_cases/KIND` or `KIND--VARIANT` holds `contract.yaml`, broken in that one way, and
`expected.txt`, the output of `dspark check` for it. To accept a new wording, paste the new output.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dspark.cli import main
from dspark.compile import compile_table
from dspark.contract_bench import read_bench
from dspark.contract_check import read_file, read_shipped, routes_of
from dspark.contract_demands import KINDS
from dspark.contract_reader import (
    TARGETS,
    load_contract,
    load_target_contract,
    read_contract,
    target_file,
)
from dspark.contract_tensors import NEEDS
from dspark.diagnostics import Report, catalogue
from dspark.document import Document
from dspark.errors import TableError
from dspark.files import rules_file
from dspark.typed import TYPES

FOLDER = Path(__file__).parents[1] / "contract_cases"
CASES = sorted(folder.name for folder in FOLDER.iterdir() if folder.name != "parts")
EXIT_CODES = {"weak-tests": 1, "failing-test": 1}
SEVERAL_KINDS = {"many-mistakes", *EXIT_CODES}
OF_CONTRACTS = {n for n, (rule_id, _, _) in catalogue().items() if "D036" <= rule_id <= "D045"}


def kind(case: str) -> str:
    return case.partition("--")[0]


@pytest.fixture(autouse=True)
def at_the_top(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(repository)


@pytest.mark.parametrize("case", CASES)
def test_the_output_is_what_was_reviewed(case: str, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["check", f"tests/contract_cases/{case}/contract.yaml"])

    assert (FOLDER / case / "expected.txt").read_text(encoding="utf-8") == capsys.readouterr().out
    assert EXIT_CODES.get(case, 5) == code


def test_every_kind_that_only_a_contract_has_has_a_case() -> None:
    # A lane without a contract has no file to show it in; the test below does.
    assert OF_CONTRACTS - {"no-contract"} <= {kind(case) for case in CASES}


@pytest.mark.parametrize("case", [case for case in CASES if case not in SEVERAL_KINDS])
def test_a_mistake_is_reported_alone_and_without_its_consequences(case: str) -> None:
    with pytest.raises(TableError) as caught:
        read_file(FOLDER / case / "contract.yaml")

    assert {kind(case)} == {diagnostic.name for diagnostic in caught.value.diagnostics}


@pytest.mark.parametrize("case", CASES)
def test_a_contract_says_in_its_first_line_what_is_wrong(case: str) -> None:
    first = (FOLDER / case / "contract.yaml").read_text(encoding="utf-8").splitlines()[0]

    assert re.fullmatch(r"# .{15,}", first)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("- {one-of: attention_bias, values: [false],", "- {one-of: attention_bias, [a]: [false],"),
        ("- {tensors: {all: F16}, finds:", "- {tensors: {all: F16}, [a]:"),
    ],
)
def test_a_key_that_is_no_text_is_said_to_be_none(old: str, new: str) -> None:
    place = target_file(TARGETS[0])
    text = place.read_text(encoding="utf-8")
    assert 1 == text.count(old)
    report = Report()

    read_bench(read_contract(Document(text.replace(old, new).encode(), str(place), report)))

    assert [] != [d for d in report.diagnostics() if "must be plain text" in d.message]


@pytest.mark.parametrize(
    "edits",
    [
        "{all: {a: b}}",
        "{all: F17}",
        "{add: {x: [3, [164, 14]]}}",
        "{add: {x: [F16, [164, {a: 1}]]}}",
        "{add: {x: [F16, [164, true]]}}",
        "{shape: {x: [a]}}",
        "{dtype: {x: [F16]}}",
        "{drop: [[a]]}",
        "{drop_each: [{a: 1}]}",
        "{drop_each: 3}",
        "{rename: {x: 3}}",
        "{prefix: 3}",
        "{values: {x: [a]}}",
    ],
)
def test_edits_of_tensors_that_are_none_are_a_diagnostic(edits: str) -> None:
    place = target_file(TARGETS[0])
    text = place.read_text(encoding="utf-8")
    old = "- {tensors: {all: F16}, finds:"
    assert 1 == text.count(old)
    report = Report()
    broken = text.replace(old, f"- {{tensors: {edits}, finds:").encode()

    read_bench(read_contract(Document(broken, str(place), report)))

    (found,) = report.diagnostics()
    assert "`tensors` must be edits of tensors, each as in docs/lane-contracts.md" in found.message


def test_a_dtype_list_that_is_broken_is_said_before_a_test_uses_it() -> None:
    place = target_file(TARGETS[0])
    text, old = place.read_text(encoding="utf-8"), "\ndtypes: ["
    assert 1 == text.count(old)
    report = Report()

    read_bench(read_contract(Document(text.replace(old, "\n[a]: [").encode(), str(place), report)))

    assert [] != [d for d in report.diagnostics() if "must be plain text" in d.message]


def test_all_mistakes_are_reported_in_one_run_in_file_order() -> None:
    with pytest.raises(TableError) as caught:
        read_file(FOLDER / "many-mistakes" / "contract.yaml")

    places = [(found.place.line, found.place.column) for found in caught.value.diagnostics]
    assert sorted(places) == places
    assert 4 <= len({found.name for found in caught.value.diagnostics})


def test_a_lane_without_a_contract_is_named() -> None:
    with pytest.raises(TableError) as loaded:
        load_contract("no-such-lane")
    with pytest.raises(TableError) as listed:
        read_shipped({**routes_of(compile_table()), "no-such-lane": ["a-rule"]})

    for caught in (loaded, listed):
        (found,) = caught.value.diagnostics
        assert ("no-contract", "lane `no-such-lane` has no contract") == (found.name, found.message)


def test_each_lane_of_the_table_has_a_contract_and_each_contract_a_lane() -> None:
    lanes = {file.stem for file in rules_file("lanes").glob("*.yaml")}
    targets = {file.stem for file in rules_file("targets").glob("*.yaml")}

    assert set(compile_table().lanes) == lanes
    assert set(TARGETS) == targets
    assert {lane: lane for lane in lanes} == {lane: load_contract(lane).name for lane in lanes}


def test_what_is_merged_comes_from_the_parts_and_the_lane() -> None:
    contract = load_contract("qwen3-dspark")
    files = {Path(key.place.file).name for key in contract.keys.values()}

    assert {"qwen3-layers.yaml", "block-draft.yaml", "qwen3-dspark.yaml"} == files
    assert ["hidden_size", "transformer_layer_config.hidden_size"] == [
        place.dotted for place in contract.keys["hidden_size"].places
    ]
    assert ("Qwen3ForCausalLM", "qwen3") == load_target_contract()[1:3]


def test_the_language_page_describes_every_word(repository: Path) -> None:
    page = (repository / "docs" / "lane-contracts.md").read_text(encoding="utf-8")
    cells = {match[1] for match in re.finditer(r"^\| `([a-z-]+)`", page, re.M)}

    assert set() == {*KINDS, *NEEDS, *TYPES} - cells


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "the lane must be a mapping, and this is nothing"),
        (b"- a list\n", "the lane must be a mapping, and this is a list"),
        (b"lane: x\n  y\n z: [", "not YAML"),
    ],
)
def test_a_file_of_no_contract_at_all_is_a_diagnostic(data: bytes, words: str) -> None:
    report = Report()

    read_contract(Document(data, "lanes/x.yaml", report))

    assert [words] == [words for found in report.diagnostics() if words in found.message]
