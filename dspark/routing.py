"""From a source (a folder, a config.json, a repo id, standard input) to its decision."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from typing import BinaryIO

from dspark.compile import compile_table
from dspark.compiled import Table
from dspark.decision import Decision
from dspark.decision_log import announce
from dspark.errors import Refused, Unreadable
from dspark.observe import observe_config, observe_gguf
from dspark.source import Source, read_repo, read_source
from dspark.strict_json import parse_config

Download = Callable[..., str]


@cache
def default_table() -> Table:
    """The table that ships with the package, compiled once per process."""
    return compile_table()


def route(source: str | os.PathLike[str], *, table: Table | None = None) -> Decision:
    """The decision for a checkpoint: a folder, a config.json, a repo id, `-` for standard input.

    Reads the config only, never a weight, and nothing from the network for a local path. Never
    raises for what it finds there: what cannot be read is a decision too.
    """
    decision = decide_source(table or default_table(), source)
    announce(decision)
    return decision


def require_lane(source: str | os.PathLike[str], *, table: Table | None = None) -> Decision:
    """The same, for callers that need a lane. Raises `Refused` with the decision otherwise."""
    decision = route(source, table=table)
    if decision.lane is None:
        raise Refused(decision)
    return decision


def decide_source(
    table: Table,
    source: str | os.PathLike[str],
    *,
    stdin: BinaryIO | None = None,
    download: Download | None = None,
) -> Decision:
    """`route` with its inputs named: `stdin` for `-`, `download` in place of the hub's."""
    return examine(table, source, stdin=stdin, download=download)[0]


def decide_repo(table: Table, repo: str, *, download: Download | None = None) -> Decision:
    """The decision for a repo id, for callers who must not reach local files by any name."""
    try:
        observation = observe_config(parse_config(read_repo(repo, download=download).data))
    except Unreadable as problem:
        return table.unreadable(problem, repo)
    return table.decide(observation, repo)


def examine(
    table: Table,
    source: str | os.PathLike[str],
    *,
    stdin: BinaryIO | None = None,
    download: Download | None = None,
) -> tuple[Decision, Source | None]:
    """The same decision with what was found at the source; None where nothing could be read."""
    name = os.fspath(source)
    found = None
    try:
        found = read_source(source, stdin=stdin, download=download)
        if found.kind == "gguf":
            observation = observe_gguf()
        else:
            observation = observe_config(parse_config(found.data))
    except Unreadable as problem:
        return table.unreadable(problem, name), found
    return table.decide(observation, name), found
