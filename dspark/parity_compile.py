"""The parity packs that ship: read, proved by the same proofs as our table, and held by name."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from dspark import analyse
from dspark.diagnostics import Report
from dspark.document import Document
from dspark.errors import TableError
from dspark.files import rules_file
from dspark.graph import TooLarge, build
from dspark.parity_cases import check_references, read_recorded
from dspark.parity_pack import JOIN, Pack
from dspark.parity_reader import PackSource, read_pack
from dspark.rule import Rule

FOLDER = rules_file("parity")
CASES = ".cases.jsonl"
GUIDE = "docs/parity.md"


def pack_files() -> tuple[Path, ...]:
    """The files of the packs that ship, by name."""
    return tuple(sorted(FOLDER.glob("*.yaml")))


@cache
def shipped_packs() -> tuple[Pack, ...]:
    """Every pack that ships, proved. Raises `TableError` with all that is wrong in any of them."""
    reports = []
    packs = []
    for file in pack_files():
        report = Report()
        reports.append(report)
        packs.append(_compile(file, report))
    _raise_any(reports)
    return tuple(pack for pack in packs if pack is not None)


def compile_pack(file: Path) -> Pack:
    """The pack in `file`, with the cases beside it. Raises `TableError`, and OSError."""
    report = Report()
    pack = _compile(file, report)
    _raise_any([report])
    assert pack is not None  # INVARIANT: a pack without diagnostics has a graph
    return pack


def _raise_any(reports: Sequence[Report]) -> None:
    found = tuple(each for report in reports for each in report.diagnostics())
    if found:
        raise TableError(found)


def _compile(file: Path, report: Report) -> Pack | None:
    name = os.fspath(file)
    document = Document(file.read_bytes(), name, report, GUIDE)
    read = read_pack(document)
    recorded = file.with_name(file.name.removesuffix(".yaml") + CASES)
    cases = tuple(read_recorded(recorded.read_bytes(), os.fspath(recorded), report))
    rules = dict(read.rules.rules)
    if not rules:
        return None  # reported as such; what follows would report its consequences
    default = rules.get(read.rules.default) or Rule.bare("", read.rules.place)
    pack = Pack(name, read.source, rules, default, cases)
    try:
        proved = [rule for rule in rules.values() if rule.id not in read.rules.unread_when]
        pack.built = build(pack.facts, proved, default, pack.known, ordered=True)
    except TooLarge:
        report.add("table-too-large", read.rules.place)
        return None
    _prove(read, pack, report)
    return None if report else pack


def _prove(read: PackSource, pack: Pack, report: Report) -> None:
    # A rule's lane holds its outcome too, so which lanes are used is looked at here.
    analyse.prove(read.rules._replace(lanes={}), pack.built, report, pack.show)
    check_references(pack, report)
    used = {(rule.lane or "").partition(JOIN)[2] for rule in pack.rules.values()}
    for name, lane in pack.lanes.items():
        if name not in used and name not in pack.after.values():
            report.add("unused-lane", lane.place, lane=name)
