"""`dspark route CHECKPOINT...`: which lane takes each checkpoint, or which rule refuses it."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections import Counter
from typing import Any, BinaryIO

from dspark.compiled import Table
from dspark.decision import Decision
from dspark.output import progress, write
from dspark.verb import (
    EXIT_CODES,
    OK,
    REFUSED,
    UNREADABLE,
    Usage,
    add_rules_option,
    exit_code,
    open_table,
)

_DESCRIPTION = (
    "CHECKPOINT is a checkpoint folder, a config.json, a .safetensors or .gguf file, a folder of "
    "the hub's cache, - for a config.json on standard input, or, if nothing local has that name, a "
    "repo id owner/name[@revision]. Only the config is read."
)


def add_route(verbs: Any) -> None:
    """Adds the verb to the command line's verbs."""
    parser: argparse.ArgumentParser = verbs.add_parser(
        "route", help="decide checkpoints", description=_DESCRIPTION, epilog=EXIT_CODES
    )
    parser.add_argument("checkpoints", nargs="+", metavar="CHECKPOINT")
    add_rules_option(parser)
    parser.add_argument(
        "--json", action="store_true", help="one JSON object per checkpoint and line"
    )
    parser.add_argument("--explain", action="store_true", help="evidence, path and near misses")
    parser.add_argument("--quiet", action="store_true", help="print nothing; the exit code answers")
    parser.add_argument(
        "-r", "--recursive", action="store_true", help="every folder with a config.json under DIR"
    )
    parser.add_argument(
        "--check", action="store_true", help="also check config and tensors of what a lane takes"
    )
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    table = open_table(arguments.rules)
    sources = _found(arguments.checkpoints) if arguments.recursive else arguments.checkpoints
    code = OK
    counts: Counter[int] = Counter()
    for source in progress(sources, "routing"):
        stdin = getattr(sys.stdin, "buffer", None) if source == "-" else None
        decision = _decide(table, source, stdin, check=arguments.check)
        code = max(code, exit_code(decision))
        if arguments.quiet:
            continue
        if arguments.json:
            write([[json.dumps(decision.to_json())]])
            continue
        from dspark.render import decision_lines, explain_lines

        write(explain_lines(decision) if arguments.explain else decision_lines(decision))
        counts[exit_code(decision)] += 1
    if sum(counts.values()) > 1:
        write([[_tally(counts)]])
    return code


def _found(folders: list[str]) -> list[str]:
    """Every checkpoint under the folders. Raises `Usage`."""
    from dspark.find import find_checkpoints

    sources: list[str] = []
    for top in folders:
        if not os.path.isdir(top):  # noqa: PTH112 - the other one raises for a name too long
            raise Usage(f"--recursive needs a folder, and `{top}` is none")
        found = list(find_checkpoints(top))
        if not found:
            raise Usage(f"no folder under `{top}` has a config.json")
        sources += found
    return sources


def _tally(counts: Counter[int]) -> str:
    lanes, refused, unreadable = counts[OK], counts[REFUSED], counts[UNREADABLE]
    text = f"{sum(counts.values())} checkpoints: {lanes} in a lane, {refused} refused"
    return f"{text}, {unreadable} unreadable" if unreadable else text


def _decide(table: Table, source: str, stdin: BinaryIO | None, *, check: bool) -> Decision:
    if check:
        from dspark.checked import check_source

        return check_source(table, source, stdin=stdin)
    from dspark.routing import decide_source

    return decide_source(table, source, stdin=stdin)
