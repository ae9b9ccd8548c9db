"""What the pages say is so: commands print what is shown, names exist, links lead somewhere.

`python -m tests.test_docs --write` rewrites what is generated: shown outputs and docs/rules.md.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import dspark
from dspark import findings, handoff_reader, handoff_table, messages, rule_reader, table
from dspark.cases import SOURCE_KINDS
from dspark.contract_demands import KINDS
from dspark.diagnostics import catalogue
from dspark.facts import FACTS
from scripts import compatibility, rule_index
from tests.support import cost_page

REPOSITORY = Path(__file__).parent.parent
REPLAYED = ["docs/adding-a-lane.md", "docs/rule-language.md"]
PAGES = sorted(
    str(path.relative_to(REPOSITORY))
    for path in [*REPOSITORY.glob("*.md"), *REPOSITORY.glob("docs/**/*.md")]
)
LANGUAGE = "docs/rule-language.md"
COSTS = "docs/performance.md"
DECISIONS = [page for page in PAGES if page.startswith("docs/decisions/")]

FENCE = re.compile(r"^```(?P<language>\w+) ?(?P<file>\S*)\n(?P<body>.*?)^```$", re.M | re.S)
COMMAND = re.compile(r"^\$ (.*)$", re.M)
REWRITE = "stale: run `.venv/bin/python -m tests.test_docs --write`"


def read(page: str) -> str:
    return (REPOSITORY / page).read_text(encoding="utf-8")


def replay(page: str, folder: Path) -> str:
    """The page with its named blocks saved in `folder`, and what its commands print there."""
    shutil.copytree(REPOSITORY / "rules", folder / "rules")

    def rerun(block: re.Match[str]) -> str:
        if block["file"]:
            file = folder / block["file"]
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(block["body"], encoding="utf-8")
        if block["language"] != "console":
            return block[0]
        commands = COMMAND.findall(block["body"])
        return "```console\n" + "".join(session(command, folder) for command in commands) + "```"

    return FENCE.sub(rerun, read(page))


def session(command: str, folder: Path) -> str:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    shell = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env={"PATH": path, "HOME": str(folder), "LC_ALL": "C.UTF-8", "HF_HUB_OFFLINE": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return f"$ {command}\n{shell.stdout}"


@pytest.mark.parametrize(
    "page",
    [
        pytest.param("docs/adding-a-lane.md", marks=pytest.mark.slow),
        "docs/rule-language.md",
    ],
)
def test_commands_print_what_the_page_shows(page: str, tmp_path: Path) -> None:
    assert "$ dspark " in read(page)

    assert read(page) == replay(page, tmp_path), REWRITE


def test_the_rule_index_is_fresh() -> None:
    assert read("docs/rules.md") == rule_index.rules_page(), REWRITE


def test_the_cost_tables_are_fresh() -> None:
    page = read(COSTS)

    assert page == cost_page.filled(page), REWRITE


def test_the_compatibility_matrix_is_fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(REPOSITORY)

    assert read("docs/compatibility.md") == compatibility.compatibility_page(), REWRITE


def known_ids() -> set[str]:
    compiled = dspark.compile_table()
    rules = [*compiled.rules.values(), *compiled.messages().values()]
    diagnostics = {rule_id for rule_id, _, _ in catalogue().values()}
    found = {entry.rule_id for entry in findings.catalogue().entries.values()}
    return {rule.id for rule in rules} | diagnostics | found | set(compiled.retired)


def known_names() -> set[str]:
    compiled = dspark.compile_table()
    rules = [*compiled.rules.values(), *compiled.messages().values()]
    cells = {cell for fact in FACTS.values() for cell in fact.cells or () if cell}
    names = {rule.name for rule in rules} | set(catalogue()) | set(findings.catalogue().entries)
    names |= {*handoff_reader.CHECKS, *handoff_table.DRAFTS}
    return names | set(compiled.lanes) | cells | set(KINDS)


def defined_here(page: str) -> set[str]:
    """IDs, names and lanes of the example tables that the page itself shows."""
    examples = "\n".join(
        block["body"] for block in FENCE.finditer(read(page)) if block["language"] == "yaml"
    )
    keys = re.findall(r"^ *([\w-]+):", examples, re.M)
    return {*keys, *re.findall(r"\b(?:name|lane): ([\w-]+)", examples)}


@pytest.mark.parametrize("page", PAGES)
def test_every_id_on_a_page_exists(page: str) -> None:
    mentioned = set(re.findall(r"\b[LREDCTPBWX][0-9]{3,5}\b", read(page)))

    assert set() == mentioned - known_ids() - defined_here(page)


@pytest.mark.parametrize("page", PAGES)
def test_every_hyphenated_name_on_a_page_exists(page: str) -> None:
    prose = FENCE.sub("", read(page))
    mentioned = set(re.findall(r"`([a-z0-9]+(?:-[a-z0-9]+)+)`", prose))

    assert set() == mentioned - known_names() - defined_here(page)


@pytest.mark.parametrize("page", PAGES)
def test_an_id_stands_beside_its_own_name(page: str) -> None:
    compiled = dspark.compile_table()
    names = {r.id: r.name for r in [*compiled.rules.values(), *compiled.messages().values()]}
    names |= {rule_id: name for name, (rule_id, _, _) in catalogue().items()}
    pairs = re.findall(r"\b([LREDCTPB][0-9]{3,5})(?: \| |, | \(|\s)`([a-z0-9.-]+)`", read(page))

    assert [] == [
        (rule_id, name)
        for rule_id, name in pairs
        if name in set(names.values()) and names.get(rule_id) != name
    ]


# CONTRIBUTING.md also names folders that are still to come.
@pytest.mark.parametrize("page", [page for page in PAGES if page != "CONTRIBUTING.md"])
def test_every_file_named_on_a_page_exists(page: str) -> None:
    rooms = "dspark|rules|schemas|runtime|kernels|tests|scripts|docs"
    named = set(re.findall(rf"`((?:{rooms})/[\w./-]*\w)/?`", read(page)))

    assert set() == {name for name in named if not (REPOSITORY / name).exists()}


def slug(heading: str) -> str:
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


@pytest.mark.parametrize("page", PAGES)
def test_every_relative_link_leads_somewhere(page: str) -> None:
    prose = FENCE.sub("", read(page))
    links = re.findall(r"\[[^\]]*\]\((?!https?://)([^)\s]+)\)", prose)
    broken = []
    for link in links:
        file, _, anchor = link.partition("#")
        target = (REPOSITORY / page).parent / file if file else REPOSITORY / page
        if not target.exists():
            broken.append(link)
        elif anchor:
            headings = re.findall(r"^#+ (.*)$", target.read_text(encoding="utf-8"), re.M)
            if anchor not in map(slug, headings):
                broken.append(link)

    assert [] == broken


def rows(heading: str) -> list[tuple[str, str]]:
    """(first code word, whole row) of each table row under a heading of the language page."""
    _, found, section = read(LANGUAGE).partition(f"\n## {heading}\n")
    assert found, heading
    section = section.partition("\n## ")[0]
    return [(row[1], row[0]) for row in re.finditer(r"^\| (?:\w+ \| )?`([^`]+)`.*$", section, re.M)]


@pytest.mark.parametrize(
    ("heading", "words"),
    [
        ("The file", table._TABLE_KEYS),
        ("A rule", rule_reader._RULE_KEYS),
        ("Facts", tuple(FACTS)),
        ("Messages", tuple(f"{{{name}}}" for name in messages.ROUTE_PLACEHOLDERS)),
        ("Tests", SOURCE_KINDS),
        ("Diagnostics", tuple(catalogue())),
    ],
)
def test_the_language_page_describes_every_word(heading: str, words: tuple[str, ...]) -> None:
    assert sorted(words) == sorted(word for word, _ in rows(heading))


def test_the_language_page_lists_the_cells_of_each_fact() -> None:
    shown = {fact: row.split(" | ")[1] for fact, row in rows("Facts")}

    assert {
        name: ", ".join(f"`{cell or 'ABSENT'}`" for cell in fact.cells) if fact.cells else "open"
        for name, fact in FACTS.items()
    } == shown


def test_the_map_names_every_file_of_the_router() -> None:
    named = set(re.findall(r"`dspark/(\w+\.py)`", read("docs/architecture.md")))

    assert {path.name for path in (REPOSITORY / "dspark").glob("*.py")} == named


def test_decisions_are_numbered_without_a_gap() -> None:
    assert DECISIONS

    numbers = [int(Path(page).name[:3]) for page in DECISIONS]
    assert list(range(1, len(DECISIONS) + 1)) == numbers


@pytest.mark.parametrize("page", DECISIONS)
def test_a_decision_is_one_page(page: str) -> None:
    text = read(page)

    assert ["Context", "Decision", "Consequences"] == re.findall(r"^## (.*)$", text, re.M)
    assert text.startswith(f"# {int(Path(page).name[:3])}. ")
    assert len(text.splitlines()) <= 40


def write() -> None:
    (REPOSITORY / COSTS).write_text(cost_page.filled(read(COSTS)), encoding="utf-8")
    (REPOSITORY / "docs/rules.md").write_text(rule_index.rules_page(), encoding="utf-8")
    compatibility.PAGE.write_text(compatibility.compatibility_page(), encoding="utf-8")
    for page in REPLAYED:
        with tempfile.TemporaryDirectory() as folder:
            text = replay(page, Path(folder))
        (REPOSITORY / page).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1:] != ["--write"]:
        sys.exit("usage: python -m tests.test_docs --write")
    write()
