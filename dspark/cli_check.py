"""`dspark check [FILE]`: whether a table, and what ships beside it, passes its own tests."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from dspark.compile import is_pack
from dspark.output import flush, write
from dspark.verb import FAILED, OK, Usage, open_table


def add_check(verbs: Any) -> None:
    """Adds the verb to the command line's verbs."""
    parser: argparse.ArgumentParser = verbs.add_parser(
        "check", help="prove a table and run its tests and mutants"
    )
    parser.add_argument("file", nargs="?", metavar="FILE", help="default: the table that ships")
    parser.add_argument("--json", action="store_true", help="the findings as one JSON object")
    parser.add_argument(
        "--fix-nothing", action="store_true", help="stated for scripts: check only ever reports"
    )
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    if arguments.file is not None and not is_pack(arguments.file):
        passed = _check_contracts(arguments.file, arguments.json)
        if passed is not None:
            return OK if passed else FAILED
    return OK if _check_table(arguments.file, arguments.json) else FAILED


def _check_contracts(file: str, as_json: bool) -> bool | None:
    """Whether a file of contracts passes; None for a file of another kind."""
    from dspark.contract_check import check_contracts, read_file
    from dspark.render import contract_lines

    try:
        benches = read_file(Path(file))
    except OSError as error:
        reason = error.strerror or error
        raise Usage(f"cannot read the rules file `{file}`: {reason}") from error
    if benches is None:
        return None
    found = check_contracts(benches, file)
    write([[json.dumps(found.to_json())]] if as_json else contract_lines(found))
    return found.passed


def _check_table(file: str | None, as_json: bool) -> bool:
    from dspark.check import check, is_shipped
    from dspark.contract_check import check_contracts, read_shipped, routes_of
    from dspark.handoff_check import prove_handoffs
    from dspark.parity_check import check_packs
    from dspark.parity_compile import shipped_packs
    from dspark.render import check_lines, contract_lines
    from dspark.render_parity import pack_lines

    table = open_table(file)
    if not as_json:
        # Seconds pass before the rest: say at once what has been proved.
        write([[f"{table.file}: {len(table.rules)} rules, 0 diagnostics, table {table.version}"]])
        flush()
    contracts = read_shipped(routes_of(table)) if is_shipped(table) else ()
    if contracts:
        prove_handoffs(table)
    packs = shipped_packs() if contracts else ()
    report = check(table)
    found = check_contracts(contracts)
    held = check_packs(packs)
    if as_json:
        more: dict[str, object] = {}
        if contracts:
            more = {"contracts": found.to_json(), "packs": [each.to_json() for each in held]}
        write([[json.dumps(report.to_json() | more)]])
    else:
        write(check_lines(report))
        write(contract_lines(found) if contracts else [])
        write(pack_lines(held) if packs else [])
    return report.passed and found.passed and all(each.passed for each in held)
