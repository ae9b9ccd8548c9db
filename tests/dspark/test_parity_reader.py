"""What can be wrong with a parity pack's file, each where it stands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dspark.diagnostics import Diagnostic
from dspark.errors import TableError
from dspark.parity_cases import wrong
from dspark.parity_compile import compile_pack
from tests.support.packs import SMALL, write_pack


def diagnostics(folder: Path, before: str, after: str) -> tuple[Diagnostic, ...]:
    assert 1 == SMALL.count(before), before
    file = write_pack(folder, SMALL.replace(before, after), "")
    with pytest.raises(TableError) as caught:
        compile_pack(file)
    return caught.value.diagnostics


def test_the_small_pack_compiles(tmp_path: Path) -> None:
    pack = compile_pack(write_pack(tmp_path))

    assert ("small", "Small", "1", 4, 16) == (
        pack.name,
        pack.engine,
        pack.version,
        len(pack.rules),
        len(pack.cases),
    )
    assert {"BlockModel": 0, "BareModel": 1, "PlainModel": 2} == pack.registry
    assert ("qwen3-dspark",) == pack.lanes["block"].ours


@pytest.mark.parametrize(
    ("before", "after", "name", "words"),
    [
        ("engine: Small\n", "", "missing-table-key", "the pack has no `engine`"),
        ("about: an", "abuot: an", "unknown-key", "unknown key `abuot` in the pack"),
        ("{entry: only}", "{entry: first}", "unknown-name", "no way to read a fact is called"),
        ("as: size", "as: width", "unknown-name", "no way to read a fact is called `width`"),
        ("{entry: only}", "{entry: only, key: x}", "wrong-shape", "one of key, flag, words, entry"),
        ("  rank: {key", "  Rank: {key", "wrong-shape", "under a plain name"),
        ("rank: [zero, ABSENT]", "rank: [none, ABSENT]", "unknown-cell", "no cell of `rank`|not a"),
        ("rank: [zero, ABSENT]", "rnak: zero", "unknown-fact", "no fact is called `rnak`"),
        (
            "architecture: BlockModel}\n    lane",
            "architecture: BlokModel}\n    lane",
            "unknown-name",
            "no class of the engine's registry is called `BlokModel`",
        ),
        ("    lane: block\n", "    lane: blocks\n", "unknown-lane", "no lane is called `blocks`"),
        ("swallow: plain", "swallow: plane", "unknown-lane", "no lane is called `plane`"),
        ("swallow: plain", "lane: plain\n    refuse: x", "no-outcome", "both `lane` and `refuse`"),
        ("    unknown: the", "    why: the", "no-outcome", "neither `lane` nor `swallow` nor"),
        ("    lane: block\n", "    lane: block\n    after: plain\n", "idle-key", "`after` does"),
        ("    unknown: the", "    why: x\n    unknown: the", "idle-key", "`why` does nothing"),
        ("    why: its class\n", "", "missing-table-key", "rule `X002` has no `why`"),
        ("    refs: [small.py:2]\n", "", "missing-table-key", "rule `X002` has no `refs`"),
        ("  X002:", "  L002:", "pack-id-letter", "`L002` cannot be the ID"),
        ("  X002:", "  Y002:", "pack-id-letter", "`Y002` cannot be the ID"),
        ("{architecture} needs", "{arch} needs", "unknown-placeholder", "`arch`"),
        ("flags: {method: block}", "flags: {methd: block}", "unknown-name", "no flag is called"),
        (
            'commands:\n  - flags: {method: block}\n    type: "small TARGET --draft {source}"\n',
            "commands: []\n",
            "wrong-shape",
            "`commands` must be a list of commands",
        ),
        ("  plain: everything else\n", "  plain: x\n  more: y\n", "unused-lane", "lane `more`"),
        ("default: X000", "default: X009", "unknown-default", "`X009`"),
    ],
)
def test_a_mistake_is_reported_once_where_it_stands(
    before: str, after: str, name: str, words: str, tmp_path: Path
) -> None:
    found = [each for each in diagnostics(tmp_path, before, after) if each.name == name]

    assert found, [each.headline() for each in diagnostics(tmp_path, before, after)]
    assert any(word in found[0].message for word in words.split("|"))
    line = SMALL[: SMALL.index(before)].count("\n") + 1
    assert abs(line - found[0].place.line) <= 5 or name == "missing-table-key"


def test_a_rule_behind_one_that_takes_all_it_could_is_reported(tmp_path: Path) -> None:
    found = diagnostics(tmp_path, "architecture: BlockModel}\n    lane", "rank: zero}\n    lane")

    assert {"shadowed-rule", "dead-rule"} & {each.name for each in found}


def test_a_divergence_names_only_rules_of_the_pack(tmp_path: Path) -> None:
    more = SMALL + "divergences:\n  - {theirs: [X007], ours: [lanes], why: meant}\n"

    with pytest.raises(TableError) as caught:
        compile_pack(write_pack(tmp_path, more))

    (found,) = caught.value.diagnostics
    assert ("unknown-id", "`X007` is not a rule of this file") == (found.name, found.message)


def test_a_routing_table_still_cannot_ask_a_path_or_a_flag(tmp_path: Path) -> None:
    from dspark.compile import compile_table

    table = tmp_path / "table.yaml"
    table.write_text(
        "table: t\nfacts: [path]\ndefault: R000\nrules:\n  R001:\n    name: by-path\n"
        "    when: {path: dspark}\n    refuse: no\n    why: x\n    tests: [{hit: {}, says: no}]\n"
        "  R000:\n    name: rest\n    refuse: rest\n    why: x\n"
        "    tests: [{hit: {}, says: rest}]\n",
        encoding="utf-8",
    )

    with pytest.raises(TableError) as caught:
        compile_table(table)

    assert "unknown-fact" in {each.name for each in caught.value.diagnostics}


def test_the_pack_on_the_page_compiles_and_agrees_with_its_case(
    repository: Path, tmp_path: Path
) -> None:
    page = (repository / "docs/parity.md").read_text(encoding="utf-8")
    (text,) = re.findall(r"^```yaml\n(.*?)^```", page, re.M | re.S)
    (line,) = re.findall(r"^```json\n(.*?)^```", page, re.M | re.S)

    pack = compile_pack(write_pack(tmp_path, text, line))

    assert [""] == [wrong(pack, case) for case in pack.cases]
