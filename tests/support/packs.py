"""A small parity pack to break, and how tests compile one."""

from __future__ import annotations

import json
from pathlib import Path

from dspark.parity_compile import compile_pack
from dspark.parity_pack import Pack

SMALL = """\
pack: small
engine: Small
version: "1"
about: an engine to try things on
registry: [BlockModel, BareModel, PlainModel]
facts:
  method: {flag: method, of: [block]}
  architecture: {entry: only}
  rank: {key: [nested_config.rank, rank], as: size}
commands:
  - flags: {method: block}
    type: "small TARGET --draft {source}"
default: X000
lanes:
  block: {about: block drafts, ours: [qwen3-dspark]}
  plain: everything else
rules:
  X001:
    name: no-rank
    when: {method: block, rank: [zero, ABSENT]}
    refuse: "{architecture} needs a rank"
    why: its head is built from it
    refs: [small.py:1]
  X002:
    name: block-draft
    when: {method: block, architecture: BlockModel}
    lane: block
    why: its class
    refs: [small.py:2]
  X003:
    name: taken-for-plain
    when:
      - {architecture: BlockModel, method: {not: block}}
      - {architecture: BareModel}
    swallow: plain
    why: nothing else is asked
    refs: [small.py:3]
  X000:
    name: not-read
    unknown: the rest was not read
    refs: [small.py]
"""

BLOCK = {"architectures": ["BlockModel"]}
CASES: list[dict[str, object]] = [
    {"rule": "X001", "config": {**BLOCK, "rank": 0}, "refuses": "BlockModel needs a rank"},
    {"rule": "X001", "config": BLOCK, "refuses": "needs a rank"},
    {"rule": "X001", "config": {"architectures": ["BareModel"]}, "refuses": "needs a rank"},
    {"rule": "X002", "config": {**BLOCK, "rank": 8}, "runs": "block"},
    {"rule": "X002", "config": {**BLOCK, "rank": -1}, "runs": "block"},
    {"rule": "X003", "config": {"architectures": ["BareModel"], "rank": 8}, "swallows": "plain"},
    {"rule": "X003", "config": BLOCK, "flags": {}, "swallows": "plain"},
    {"rule": "X003", "config": BLOCK, "flags": {"method": "mtp"}, "swallows": "plain"},
    {"rule": "X003", "config": {"architectures": ["BareModel"]}, "flags": {}, "swallows": "plain"},
    {"rule": "X000", "config": {"rank": 8}, "unknown": ""},
    {"rule": "X000", "config": {"architectures": ["Foo"], "rank": 8}, "unknown": ""},
    {"rule": "X000", "config": {"architectures": ["PlainModel"], "rank": 8}, "unknown": ""},
    {
        "rule": "X000",
        "config": {"architectures": ["BlockModel", "BareModel"], "rank": 8},
        "unknown": "",
    },
    {"rule": "X000", "config": {}, "flags": {}, "unknown": ""},
    {"rule": "X000", "config": {"rank": 0}, "flags": {}, "unknown": ""},
    {"rule": "X000", "config": {}, "flags": {"method": "mtp"}, "unknown": ""},
]


def case_lines(cases: list[dict[str, object]] | None = None) -> str:
    """Cases as the lines of a file; method block and `read` where a case says nothing else."""
    filled = [
        {"flags": {"method": "block"}, "how": "read", "seen": "small.py:1", **case}
        for case in (CASES if cases is None else cases)
    ]
    return "".join(json.dumps(case) + "\n" for case in filled)


def write_pack(folder: Path, text: str = SMALL, lines: str | None = None) -> Path:
    """The file of a pack, with its cases beside it."""
    file = folder / "small.yaml"
    file.write_text(text, encoding="utf-8")
    cases = case_lines() if lines is None else lines
    file.with_name("small.cases.jsonl").write_text(cases, encoding="utf-8")
    return file


def small_pack(folder: Path, text: str = SMALL, lines: str | None = None) -> Pack:
    """The compiled pack."""
    return compile_pack(write_pack(folder, text, lines))
