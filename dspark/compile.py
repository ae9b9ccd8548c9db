"""Rules file -> compiled table, or every reason why not."""

from __future__ import annotations

import errno
import gc
import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from dspark import analyse
from dspark.compiled import Table
from dspark.diagnostics import Report
from dspark.document import Document
from dspark.errors import PackError, TableError
from dspark.files import rules_file
from dspark.graph import Built, TooLarge, build
from dspark.prefix import prefixed
from dspark.rule import Rule
from dspark.table import Source, read_table

if TYPE_CHECKING:
    from dspark.contract import Finding
    from dspark.observe import Config
    from dspark.packs import Pack

PACK = "pack:"
"""What stands before a rule pack's name wherever a rules file can be named."""

DRAFTS = rules_file("drafts.yaml")
MESSAGES = rules_file("messages.yaml")
LARGEST_TABLE = 64 * 1024 * 1024
"""Bytes; a table of 100,000 rules has a third of it. A device or a wrong file may have no end."""


class RulesFile(NamedTuple):
    """Where a table is written."""

    file: Path
    pack: Pack | None = None
    """The rule pack it is from, whose name stands before its IDs."""


def compile_table(path: str | os.PathLike[str] | None = None) -> Table:
    """The table at `path` (by default the one that ships), proved and ready to decide.

    `pack:NAME` is the table of an installed rule pack; a file of that name is `./pack:NAME`.

    Raises `TableError` with every diagnostic, OSError if the file cannot be read, and `PackError`
    for a pack that is not there or whose package is broken.
    """
    return compile_file(rules_path(path))


def rules_path(path: str | os.PathLike[str] | None) -> RulesFile:
    """The file that `compile_table` reads for `path`. Raises `PackError`."""
    if path is None:
        return RulesFile(DRAFTS)
    if not is_pack(path):
        return RulesFile(Path(path))
    # Not above: reading the metadata of packages takes half as long to import as all the rest.
    from dspark.packs import find_pack

    pack = find_pack(os.fspath(path).removeprefix(PACK))
    return RulesFile(pack.file, pack)


def is_pack(path: str | os.PathLike[str] | None) -> bool:
    """Whether what was given for a rules file asks for a rule pack."""
    return isinstance(path, str) and path.startswith(PACK)


def compile_file(source: RulesFile) -> Table:
    """The same, for a file that was found. Raises what `compile_table` raises."""
    file, pack = source
    if pack is None:
        return compile_text(_read(file), os.fspath(file))
    try:
        return compile_text(_read(file), os.fspath(file), pack.name)
    except TableError as error:
        raise TableError(error.diagnostics, pack.origin) from None
    except OSError as error:
        reason = error.strerror or error
        raise PackError(f"{pack.origin} is broken: `{file}` cannot be read: {reason}") from error


def _read(file: Path) -> bytes:
    try:
        with file.open("rb") as stream:
            data = stream.read(LARGEST_TABLE + 1)
    except ValueError as error:
        raise OSError(errno.EINVAL, "no file system accepts this name") from error
    if len(data) > LARGEST_TABLE:
        raise OSError(errno.EFBIG, f"it is larger than {LARGEST_TABLE} bytes")
    return data


def compile_text(data: bytes, file: str, pack: str = "") -> Table:
    """The same, for a file's content; `file` is the name that diagnostics print.

    `pack` is the name of the rule pack it is from.
    """
    with _collector_paused():
        return _compile(data, file, pack)


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Keeps the cyclic collector from walking a half-built table of 10,000 rules over and over.

    That would take longer than the compile; what a compile drops holds no cycles.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def _compile(data: bytes, file: str, pack: str) -> Table:
    report = Report()
    document = Document(data, file, report)
    source = read_table(document)
    if pack:
        source = prefixed(source, pack)
    built = _prove(source, report)
    if report:
        raise TableError(report.diagnostics())
    assert built is not None  # INVARIANT: a table without diagnostics has a graph
    return Table(
        file=file,
        name=source.name,
        version=_version(data),
        facts=tuple(source.facts),
        lanes=tuple(source.lanes),
        rules=source.rules,
        default=source.rules[source.default],
        retired=source.retired,
        built=built,
        architectures=frozenset(
            cell
            for rule in source.rules.values()
            for when in rule.when
            if "architecture" in when
            for cell in when["architecture"].cells
            if cell is not None
        ),
        messages=read_messages,
        notice=_notice,
    )


def _version(data: bytes) -> str:
    """A hash of the table and of every rules file that decides: findings, contracts, hand-offs."""
    digest = hashlib.sha256(data)
    for folder in (".", "handoff", "lanes", "parts", "targets"):
        for path in sorted(MESSAGES.parent.joinpath(folder).glob("*.yaml")):
            if path != DRAFTS:
                digest.update(b"\0" + path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:12]


def _prove(source: Source, report: Report) -> Built | None:
    if not source.rules:
        return None  # reported as such; what follows would report its consequences
    default = source.rules.get(source.default) or Rule.bare("", source.place)
    try:
        proved = [rule for rule in source.rules.values() if rule.id not in source.unread_when]
        built = build(tuple(source.facts), proved, default)
    except TooLarge:
        report.add("table-too-large", source.place)
        return None
    analyse.prove(source, built, report)
    analyse.prove_messages(source.rules, report)
    analyse.prove_cases(source, report)
    return built


def _notice(lane: str | None, config: Config) -> tuple[Finding, ...]:
    # Not above: it reads contracts, and deciding needs none.
    from dspark.noticed import noticed

    return noticed(lane, config)


@cache
def read_messages() -> Mapping[str, Rule]:
    """Name -> `E` rule of the messages that ship with the package. Raises `TableError`."""
    report = Report()
    source = read_table(Document(MESSAGES.read_bytes(), os.fspath(MESSAGES), report), routing=False)
    analyse.prove_messages(source.rules, report)
    analyse.prove_cases(source, report)
    if report:
        raise TableError(report.diagnostics())
    return {rule.name: rule for rule in source.rules.values()}
