"""The page decides what Python decides: the same rule, facts, evidence, words and near misses."""

from __future__ import annotations

import base64
import io
import json
import random
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import dspark
from dspark import compiled, export, export_engines
from dspark.analyse import witness
from dspark.compile import compile_text
from dspark.compiled import Table
from dspark.decision import Decision
from dspark.engines import Try, ask_engine
from dspark.explain import near_misses
from dspark.explorer import PAGE
from dspark.facts import FACTS, OTHER, Cell
from dspark.messages import plain
from dspark.parity_compile import compile_pack, shipped_packs
from dspark.parity_pack import Pack
from dspark.routing import decide_source
from tests.dspark.test_fuzz import SEEDS, damage_bytes, damage_structure

DECIDE = Path(__file__).parents[1] / "support" / "explorer.cjs"

pytestmark = pytest.mark.skipif(
    shutil.which("node") is None, reason="node is not installed, and the page's script needs it"
)

ODD = [
    b"", b" \n", b"{}", b"[]", b'"a"', b"null", b"-0", b"GGUF\x03\x00", b"\xef\xbb\xbf{}", b"{\x00",
    *(
        b'{"architectures": ["DSparkDraftModel"], "model_type": "qwen3", "markov_rank":%s}' % rank
        for rank in (b"1e16", b"9007199254740993.0", b"1e-5", b"1.5e300", b"0.1", b"-0.0")
    ),
    *(
        b'{"architectures": ["Qwen3ForCausalLM"], "n_predict": %d, "mask_token_id": 1}' % number
        for number in (0, 2, 3, 4, 5, 7, 8)
    ),
    b'{"markov_rank": 256.0}', b'{"markov_rank": -0}', b'{"markov_rank": 1e400}',
    b'{"x": 9223372036854775807, "y": -9223372036854775808}', b'{"x": 9223372036854775808}',
    b'{"architectures": ["A\\u2028B\\ud83d\\ude00"]}', b'{"x": "\\ud83d"}', b'{"x": "\\u0000\\x"}',
    b'{"architectures": ["Qwen3DSparkModel"], "model_type": "\\ud83d\\ude00\\t\x7f"}',
    b'{"dflash_config": [1.5, 1e16, 1e-5, 123456789.125, -0.0, {"k": null}]}',
    b'{"projector_type": "dspark", "dflash_config": {"selector_rank": 1e22}}',
    b'{"projector_type": "dspark", "selector_rank": [], "conv_kernel_size": -0.0}',
    b'{"speculators_model_type": "7", "speculators_config": {"algorithm": 7}}',
    b'{"speculators_model_type": "True", "speculators_config": {"algorithm": true}}',
    b'{"speculators_model_type": "a", "speculators_config": {"algorithm": {"b": [0.1, "\xc3"]}}}',
    b'{"speculators_model_type": "a", "speculators_config": {"algorithm": {"b": [1, "\\u00e9"]}}}',
    b'{"a": "\xe2\x82"}', b'{"a": "\xed\xa0\x80"}', b'{"a": "\xc0\x80"}', b'"\xf4\x90\x80\x80"',
    "{\"\u00e9\U0001f600\": 1, 'x': 2}".encode(), b"[" * 64 + b"]" * 64, b"[" * 65, b"9" * 5000,
    b'{"__proto__": 1, "architectures": ["__proto__", "constructor"], "model_type": "toString"}',
    b'{"a": {"b": 1},\n "\\u0061": 2}', b'{"a": 1,}', b'{"a": tru}', b'{"a": 01}', b'{"a": -}',
    b'{"a": NaN}', b'{"a" 1}', b'{"a": 1', b'{"a": "' + b"x" * 200 + b'"}', b" " * 1_048_577,
    b"version https://git-lfs.github.com/spec/v1\n",
]  # fmt: skip
"""Where two JSON readers or two ways to print a value could differ."""


def by_page(table: Table, configs: Sequence[bytes], packs: bool) -> list[dict[str, Any]]:
    given = {"table": export.table_object(table), "constants": export.constants()}
    given["engines"] = export_engines.engines() if packs else []
    lines = [json.dumps(given).encode(), *map(base64.b64encode, configs)]
    node = subprocess.run(
        ["node", DECIDE, PAGE], input=b"\n".join(lines) + b"\n", capture_output=True, check=False
    )
    assert node.returncode == 0, node.stderr.decode()
    return [json.loads(line) for line in node.stdout.splitlines()]


def by_python(table: Table, config: bytes, packs: bool) -> dict[str, Any]:
    decision = decide_source(table, "-", stdin=io.BytesIO(config))
    asked = shipped_packs() if packs and has_config(decision) else ()
    return said(decision) | {"engines": [answer(pack, decision) for pack in asked]}


def said(decision: Decision) -> dict[str, Any]:
    found = decision.to_json()
    return {
        "decision": found["decision"],
        "stage": found["stage"],
        "facts": found["facts"],
        "evidence": [
            {
                "fact": item.fact,
                "value": item.value,
                "key": item.key,
                "raw": None if item.key is None else plain(item.raw),
            }
            for item in decision.evidence
        ],
        "path": [step._asdict() for step in decision.path],
        "near": [
            {
                "rule_id": miss.rule.id,
                "failed": [
                    {"fact": fact, "wanted": str(wanted), "got": got}
                    for fact, wanted, got in miss.failed
                ],
            }
            for miss in near_misses(decision)
        ],
    }


def has_config(decision: Decision) -> bool:
    seen = decision.observation
    return seen is not None and seen.packaging != "gguf"


def answer(pack: Pack, decision: Decision) -> dict[str, Any]:
    """What an engine does with the config, which has no path."""
    assert decision.observation is not None
    found = ask_engine(pack, decision.observation.config, "")
    return {"best": told(found.best), "traps": [told(trap) for trap in found.traps]}


def told(one: Try) -> dict[str, Any]:
    answer = one.answer
    return {
        "rule_id": answer.rule.id,
        "outcome": answer.outcome,
        "lane": answer.lane,
        "text": answer.text,
        "command": one.command.text,
    }


@pytest.fixture(autouse=True)
def no_spelling_suggestions(monkeypatch: pytest.MonkeyPatch) -> None:
    """The page makes none, and says so."""
    monkeypatch.setattr(compiled, "did_you_mean", lambda *_: "")


def assert_agreement(
    table: Table, configs: Sequence[bytes], *, packs: bool = False
) -> list[dict[str, Any]]:
    decisions = [by_python(table, config, packs) for config in configs]
    pages = by_page(table, configs, packs)
    for config, python, page in zip(configs, decisions, pages, strict=True):
        assert python == page, config[:500]
    return decisions


def random_configs(table: Table, count: int, seed: int) -> Iterator[bytes]:
    """Configs of every kind of cell, and published ones with their bytes or keys damaged."""
    chance = random.Random(seed)
    cells = [choices(table, fact) for fact in table.facts]
    for number in range(count):
        if number % 4 == 3:
            yield damage_bytes(chance.choice(SEEDS), chance)
        elif number % 4 == 2:
            yield damage_structure(chance.choice(SEEDS), chance)
        else:
            config = witness(table.facts, [chance.choice(some) for some in cells])
            if config is None:
                yield b"GGUF"
                continue
            if chance.random() < 0.3:
                named = sorted(table.architectures)
                config["architectures"] = chance.choices([*named, "FooModel"], k=2)
            yield (
                damage_structure(json.dumps(config).encode(), chance)
                if chance.random() < 0.3
                else (json.dumps(config).encode())
            )


def choices(table: Table, fact: str) -> list[Cell]:
    """The cells of a fact, those that lead to a lane as often as all others together."""
    named = FACTS[fact].cells
    if named is None:
        conditions = [w[fact] for r in table.rules.values() for w in r.when if fact in w]
        named = (*sorted({c for one in conditions for c in one.cells if c}), OTHER, None)
    likely: list[Cell] = ["Qwen3DSparkModel", "DSparkDraftModel", "DFlashDraftModel"]
    likely += ["qwen3", "dspark", "dflash", "flat", "nested", "positive", "zero", None]
    return [*named, *[cell for cell in likely if cell in named] * (len(named) // 4 + 1)]


def test_the_page_decides_the_corpus_as_python_does() -> None:
    assert len(SEEDS) > 30

    decisions = assert_agreement(dspark.compile_table(), SEEDS)

    assert {"L001", "L003", "R001"} <= {found["decision"]["rule_id"] for found in decisions}


def test_the_page_reads_odd_files_as_python_does() -> None:
    decisions = assert_agreement(dspark.compile_table(), ODD)

    unread = {found["decision"]["rule_id"] for found in decisions}
    assert {f"E{number:03}" for number in range(1, 12)} <= unread


def test_the_page_decides_ten_thousand_random_configs_as_python_does() -> None:
    table = dspark.compile_table()
    configs = list(random_configs(table, 10_000, seed=7))

    decisions = assert_agreement(table, configs)

    # Every rule must be reached, or the agreement says little about it.
    reached = {found["decision"]["rule_id"] for found in decisions}
    assert set() == set(table.rules) - reached
    assert {"E102", "E103", "E104", "E105", "E106", "E107"} <= reached


def test_the_page_says_of_each_engine_what_its_pack_says() -> None:
    if not shipped_packs():
        pytest.skip("no parity pack ships yet")
    table = dspark.compile_table()
    reached = [
        json.dumps(pack.realise(dict(zip(pack.facts, cells, strict=False))).config).encode()
        for pack in shipped_packs()
        for cells in pack.built.winners.values()
    ]
    configs = [*SEEDS, *ODD, *reached, *random_configs(table, 500, seed=13)]

    found = assert_agreement(table, configs, packs=True)

    best = [pack["best"] for each in found for pack in each["engines"]]
    assert {"runs", "refuses", "swallows", "unknown"} == {one["outcome"] for one in best}
    assert any(pack["traps"] for each in found for pack in each["engines"])


READINGS = """\
pack: readings
engine: Readings
version: "1"
about: every way to read a config, said back by a refusal
registry: [BlockModel, PlainModel]
facts:
  listed: {key: [a.kind, kind], of: [block, plain], same: {alias: block}, absent: plain}
  open: {key: kind, same: {alias: block}}
  count: {key: number, as: count}
  size: {key: number, as: size}
  truth: {key: kind, as: truth}
  there: {key: a.0, as: presence}
  which: {key: [a, kind, number], as: which}
  held: {key: number, against: [bound, a.bound]}
  flag: {flag: n, against: [bound, --limit]}
  word: {key: kind, words: {lo: block, pl: plain}}
  ranked: {entry: ranked}
commands:
  - {flags: {n: 4, limit: 3}, type: "start -n 4 {source}"}
default: X000
lanes: {block: block drafts}
rules:
  X001:
    name: all-of-it
    when:
      {listed: block, open: block, count: one, size: positive, truth: "yes", there: present,
       which: a, held: equal, flag: equal, word: block, ranked: BlockModel}
    lane: block
    why: so that each fact is asked
    refs: [small.py]
  X000:
    name: said-back
    refuse: "{listed}/{open}/{count}/{size}/{truth}/{there}/{which}/{held}/{flag}/{word}/{ranked}"
    why: w
    refs: [small.py]
"""
VALUES = [
    "block", "plain", "alias", "pLaIn lot", "x", 0, 1, 2, 3, 4, 8, -1, 1.0, True, False, None, [],
]  # fmt: skip


def test_the_page_reads_a_config_in_every_way_a_pack_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "readings.yaml"
    file.write_text(READINGS, encoding="utf-8")
    file.with_name("readings.cases.jsonl").write_text("", encoding="utf-8")
    pack = compile_pack(file)
    monkeypatch.setattr(export_engines, "shipped_packs", lambda: (pack,))
    monkeypatch.setitem(globals(), "shipped_packs", lambda: (pack,))
    chance = random.Random(5)
    entries = [["BlockModel"], ["PlainModel", "BlockModel"], ["Foo"], [], None]
    configs: list[dict[str, object]] = [
        {
            "kind": chance.choice(VALUES),
            "number": chance.choice(VALUES),
            "bound": chance.choice(VALUES),
            "a": chance.choice(
                [None, [1], [], {"kind": chance.choice(VALUES), "bound": 2}, {"0": 1}]
            ),
            "architectures": chance.choice(entries),
        }
        for _ in range(2000)
    ]

    data = [json.dumps(config).encode() for config in [{}, *configs]]
    found = assert_agreement(dspark.compile_table(), data, packs=True)

    words = [each["engines"][0]["best"]["text"].split("/") for each in found]
    given = {"invalid", "default", "none"}  # cells of a flag that the command does not give
    for at, fact in enumerate(pack.facts):
        cells = {text[at] for text in words if len(text) == len(pack.facts)}
        wanted = {cell or "none" for cell in pack.known[fact].cells or ()}
        assert wanted - (given if fact == "flag" else set()) <= cells, fact


def test_the_page_decides_by_a_table_with_other_facts(repository: Path) -> None:
    page = (repository / "docs/rule-language.md").read_text(encoding="utf-8")
    text = page.split("```yaml small.yaml\n")[1].split("```")[0]
    table = compile_text(text.encode(), "small.yaml")
    assert ("architecture", "model_type") == table.facts

    assert_agreement(table, [*SEEDS, *random_configs(table, 200, seed=3)])


def test_an_example_is_decided_by_the_rule_it_is_of() -> None:
    table = dspark.compile_table()
    exported = export.table_object(table)
    rules = [*exported["rules"].values(), *exported["messages"].values()]  # type: ignore[attr-defined]
    examples = {rule["id"]: rule["example"] for rule in rules if rule["example"]}

    assert {"L001", "R000", "E002", "E107"} <= set(examples)
    for rule_id, text in examples.items():
        assert rule_id == decide_source(table, "-", stdin=io.BytesIO(text.encode())).rule_id
