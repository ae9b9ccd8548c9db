"""Every way a rules file can be wrong: a broken table and the exact words it gets.

`tests/cases/KIND` or `tests/cases/KIND--VARIANT` holds `table.yaml`, broken in that one way, and
`expected.txt`, the output of `dspark check tests/cases/KIND/table.yaml` at the top of the
repository. Read them as prose; to accept a new wording, paste the new output.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

import dspark
from dspark import graph
from dspark.cli import main
from dspark.compile import compile_table, compile_text, read_messages
from dspark.diagnostics import Diagnostic, Report, catalogue
from dspark.document import Document
from dspark.errors import TableError
from dspark.facts import Cell
from dspark.files import rules_file
from dspark.observe import observe_config
from dspark.rule import Rule
from dspark.table import Source, read_table

FOLDER = Path(__file__).parents[1] / "cases"
CASES = sorted(file.parent.name for file in FOLDER.glob("*/table.yaml"))
EXIT_CODES = {"weak-tests": 1}
UNBROKEN = {"table-too-large", "weak-tests"}
SEVERAL_KINDS = {"many-mistakes", "weak-tests"}

# The version of a table covers the messages too, which change for other reasons.
VERSION = re.compile(r"table [0-9a-f]{12}")


def kind(case: str) -> str:
    return case.partition("--")[0]


@pytest.fixture(autouse=True)
def at_the_top(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(repository)


@pytest.fixture
def limit(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    # Two million branches take minutes to reach, so this one table meets a limit of three.
    if "table-too-large" in request.node.callspec.params["case"]:
        monkeypatch.setattr(graph, "LARGEST", 3)


def diagnostics(case: str) -> tuple[Diagnostic, ...]:
    with pytest.raises(TableError) as caught:
        compile_table(FOLDER / case / "table.yaml")
    return caught.value.diagnostics


@pytest.mark.usefixtures("limit")
@pytest.mark.parametrize("case", CASES)
def test_the_output_is_what_was_reviewed(case: str, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["check", f"tests/cases/{case}/table.yaml"])

    output = VERSION.sub("table VERSION", capsys.readouterr().out)
    assert (FOLDER / case / "expected.txt").read_text(encoding="utf-8") == output
    assert EXIT_CODES.get(case, 5) == code


TABLE_READERS = {
    "analyse",
    "cases",
    "compile",
    "condition_reader",
    "document",
    "rule_reader",
    "table",
}
"""The modules that read a routing table; the others report on a lane's contract."""


def reported() -> dict[str, set[str]]:
    """Kind -> the modules that report it."""
    found: dict[str, set[str]] = {}
    for file in Path(dspark.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and node.args and isinstance(node.func, ast.Attribute):
                name = node.args[0]
                about = ast.unparse(node.func).removesuffix(".add").endswith("report")
                if node.func.attr == "add" and about and isinstance(name, ast.Constant):
                    found.setdefault(str(name.value), set()).add(file.stem)
    return found


def test_every_kind_of_a_table_has_a_case_and_every_case_a_kind() -> None:
    of_tables = {name for name, modules in reported().items() if modules & TABLE_READERS}

    assert of_tables == {kind(case) for case in CASES} - SEVERAL_KINDS


def test_every_kind_is_reported_somewhere_and_everything_reported_is_a_kind() -> None:
    assert set(catalogue()) == set(reported())


@pytest.mark.usefixtures("limit")
@pytest.mark.parametrize("case", [case for case in CASES if case not in SEVERAL_KINDS])
def test_a_mistake_is_reported_alone_and_without_its_consequences(case: str) -> None:
    assert {kind(case)} == {diagnostic.name for diagnostic in diagnostics(case)}


def test_all_mistakes_are_reported_in_one_run_in_file_order() -> None:
    found = diagnostics("many-mistakes")

    places = [(diagnostic.place.line, diagnostic.place.column) for diagnostic in found]
    assert sorted(places) == places
    assert len(set(found)) == len(found)
    assert 16 <= len({diagnostic.name for diagnostic in found})


@pytest.mark.parametrize("case", CASES)
def test_a_table_says_in_its_first_line_what_is_wrong(case: str) -> None:
    first = (FOLDER / case / "table.yaml").read_text(encoding="utf-8").splitlines()[0]

    assert re.fullmatch(r"# .{15,}", first)


def test_help_and_messages_keep_to_their_grammar() -> None:
    for _, message, help_text in catalogue().values():
        assert not message.text.endswith(".")
        assert not help_text.text.endswith(".")
        assert message.text[0] in "`{" or message.text[0].islower()
        assert help_text.text[0] in "`{" or help_text.text[0].islower()


# ------------------------------------------------------------------------------- witnesses


def rules_of(case: str) -> Source:
    file = FOLDER / case / "table.yaml"
    return read_table(Document(file.read_bytes(), str(file), Report()))


def cells_of(witness: str) -> dict[str, Cell]:
    seen = observe_config(json.loads(witness))
    assert len(seen.architectures) <= 1
    cells: dict[str, Cell] = {
        fact: getattr(seen, fact) for fact in ("packaging", "algorithm", "model_type", "markov")
    }
    cells["architecture"] = seen.architectures[0] if seen.architectures else None
    return cells


def matching(rules: Mapping[str, Rule], witness: str) -> set[str]:
    cells = cells_of(witness)
    return {rule.id for rule in rules.values() if rule.matches(cells)}


CLAIMING = [
    case for case in CASES if kind(case) in ("gap", "many-mistakes", "overlap", "shadowed-rule")
]


def test_the_kinds_that_claim_something_of_a_config_show_one() -> None:
    found = [each for case in CASES if case not in UNBROKEN for each in diagnostics(case)]

    assert {"gap", "overlap", "shadowed-rule"} == {each.name for each in found if each.witness}
    assert not {each.name for each in found if not each.witness} & {
        "gap",
        "overlap",
        "shadowed-rule",
    }


@pytest.mark.parametrize("case", CLAIMING)
def test_a_witness_is_what_it_is_said_to_be(case: str) -> None:
    claims = [found for found in diagnostics(case) if found.witness]

    assert claims
    for found in claims:
        prove(case, found)


def prove(case: str, found: Diagnostic) -> None:
    rules = rules_of(case).rules
    named = re.findall(r"`([A-Z][0-9]{3})`", found.message)
    matched = matching(rules, found.witness)

    if found.name == "overlap":
        first, second = (rules[rule_id] for rule_id in named[:2])
        assert {first.id, second.id} <= matched
        assert (first.id in second.before) == (second.id in first.before)
    elif found.name == "shadowed-rule":
        shadowed, winner = named[:2]
        assert {shadowed, winner} <= matched
        assert shadowed in rules[winner].before
    else:
        assert "gap" == found.name
        assert not matched


# ------------------------------------------------------------ files that no folder can hold


@pytest.mark.parametrize(
    ("data", "name", "line", "words"),
    [
        (b"table: x\nrules: \xff\n", "yaml-syntax", 2, "the file is not UTF-8"),
        (b"a: " + b"[" * 3000 + b"]" * 3000, "yaml-syntax", 1, "nest"),
        (b"table: \x07\n", "yaml-syntax", 1, "not YAML"),
        (b"table: x\nrules:\n  ? [a]\n  : c\n", "wrong-shape", 3, "must be plain text"),
        (b"- a list\n", "wrong-shape", 1, "the table must be a mapping, and this is a list"),
        (b"", "empty-table", 1, "there is not one rule here"),
    ],
)
def test_a_file_of_no_table_at_all_is_a_diagnostic(
    data: bytes, name: str, line: int, words: str
) -> None:
    with pytest.raises(TableError) as caught:
        compile_text(data, "table.yaml")

    found = [(d.name, d.place.line) for d in caught.value.diagnostics if words in d.message]
    assert [(name, line)] == found


@pytest.mark.parametrize(
    ("given", "of"),
    [
        ('{hex: "0"}', "hex"),
        ("{hex: 12}", "hex"),
        ("{text: 5}", "text"),
        ("{text: {a: b}}", "text"),
        ("{path: [a]}", "path"),
        ("{repeat: x}", "repeat"),
        ("{repeat: [x]}", "repeat"),
        ("{repeat: [x, -1]}", "repeat"),
        ("{repeat: [x, many]}", "repeat"),
        ("{repeat: [x, 99999999999]}", "repeat"),
        ("{folder: x}", "folder"),
        ("{folder: {/etc/motd: x}}", "folder"),
        ("{folder: {../motd: x}}", "folder"),
        ("{folder: {a: [b]}}", "folder"),
        ("{hub: 404}", "hub"),
        ("{hub: {status: 404}}", "hub"),
        ("{hub: {status: 404, error: null, more: x}}", "hub"),
        ("{hub: {status: 200, error: null}}", "hub"),
        ("{hub: {status: null, error: GatedRepo}}", "hub"),
        ("{hub: {status: 404, error: 7}}", "hub"),
        (f"{{a: {'[' * 900}{']' * 900}}}", "input"),
    ],
)
def test_the_input_of_a_test_is_checked_before_it_runs(given: str, of: str) -> None:
    text = (FOLDER / "table-too-large" / "table.yaml").read_text(encoding="utf-8")
    good = "      - miss: {markov_rank: 8}\n"
    assert 1 == text.count(good)
    compile_text(text.encode(), "table.yaml")

    with pytest.raises(TableError) as caught:
        compile_text(text.replace(good, f"      - miss: {given}\n").encode(), "table.yaml")

    (found,) = caught.value.diagnostics
    assert "wrong-shape" == found.name
    assert f"the {of} of a test must be" in found.message.replace("`", "")


@pytest.mark.parametrize(
    ("written", "found"),
    [
        ("mis: {markov_rank: 8}", [("unknown-key", 9)]),
        ("{is: R000, mis: {markov_rank: 8}}", [("unknown-key", 20)]),
        ("{miss: {markov_rank: 8}, sais: x}", [("idle-key", 34), ("unknown-key", 34)]),
    ],
)
def test_a_misspelt_key_of_a_test_is_read_where_it_stands(
    written: str, found: list[tuple[str, int]]
) -> None:
    text = (FOLDER / "table-too-large" / "table.yaml").read_text(encoding="utf-8")
    good = "      - miss: {markov_rank: 8}\n"
    assert 1 == text.count(good)

    with pytest.raises(TableError) as caught:
        compile_text(text.replace(good, f"      - {written}\n").encode(), "table.yaml")

    at = text[: text.index(good)].count("\n") + 1
    diagnostics = caught.value.diagnostics
    assert {at} == {each.place.line for each in diagnostics}
    assert found == sorted((each.name, each.place.column) for each in diagnostics)


def test_a_message_table_has_no_routing_keys() -> None:
    report = Report()
    text = "table: m\nfacts: [markov]\nrules:\n  E001:\n    name: m\n    when: {}\n    why: w\n"

    read_table(Document(text.encode(), "messages.yaml", report), routing=False)

    unknown = {d.message for d in report.diagnostics() if d.name == "unknown-key"}
    assert {"unknown key `facts` in the table", "unknown key `when` in rule `E001`"} == unknown


def test_a_routing_rule_cannot_widen_the_list_of_placeholders() -> None:
    text = (FOLDER / "table-too-large" / "table.yaml").read_text(encoding="utf-8")
    broken = text.replace('decides this checkpoint"', 'decides {path}"\n    placeholders: [path]')
    assert broken != text

    with pytest.raises(TableError) as caught:
        compile_text(broken.encode(), "table.yaml")

    assert ["unknown-placeholder", "unknown-key"] == [d.name for d in caught.value.diagnostics]


# --------------------------------------------------------------------- what ships, as a whole

# These read weights for a lane's contract: what they say belongs to the lane, not to messages.yaml.
AFTER_ROUTING = {"header_json", "headers", "ranges", "remote", "tensors"}


def raised() -> Iterator[tuple[str, set[str] | None]]:
    """(message name, placeholders filled or None if not written out) of every raise in the router.

    strict_json's `_refusal` adds the line and the column.
    """
    for file in Path(dspark.__file__).parent.glob("*.py"):
        if file.stem in AFTER_ROUTING:
            continue
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or not node.args:
                continue
            called = node.func.attr if isinstance(node.func, ast.Attribute) else None
            called = node.func.id if isinstance(node.func, ast.Name) else called
            name = node.args[0]
            if called in ("Unreadable", "_refusal") and isinstance(name, ast.Constant):
                given = {word.arg for word in node.keywords if word.arg is not None}
                complete = len(given) == len(node.keywords)
                given |= {"line", "column"} if called == "_refusal" else set()
                yield str(name.value), given if complete else None


def test_every_message_is_raised_and_every_raise_has_a_message() -> None:
    assert set(read_messages()) == {name for name, _ in raised()}


def test_every_raise_fills_every_placeholder_of_its_message() -> None:
    for name, given in raised():
        rule = read_messages()[name]
        assert rule.refuse is not None
        wanted = set(rule.refuse.fields + (rule.help.fields if rule.help else ()))
        assert given is None or wanted <= given, name


def test_no_id_name_or_phrase_of_the_shipped_files_is_used_twice() -> None:
    table = compile_table()
    messages = table.messages().values()

    ids = [*table.rules, *table.retired, *(rule.id for rule in messages)]
    ids += [rule_id for rule_id, _, _ in catalogue().values()]
    names = [rule.name for rule in (*table.rules.values(), *messages)] + list(catalogue())
    assert len(set(ids)) == len(ids)
    assert len(set(names)) == len(names)


def test_refusals_of_the_shipped_files_are_told_apart_by_their_words() -> None:
    table = compile_table()
    rules = [*table.rules.values(), *table.messages().values()]
    words = {rule.id: rule.refuse.skeleton() for rule in rules if rule.refuse}

    inside = {(a, b) for a in words for b in words if a != b and words[a] in words[b]}

    assert 50 < len(words)
    assert set() == inside


def test_the_shipped_tables_lie_where_the_package_is() -> None:
    assert rules_file("drafts.yaml") == Path(compile_table().file)
