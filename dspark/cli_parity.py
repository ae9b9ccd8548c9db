"""`dspark parity [PACK]`: where our table and an engine differ, and whether that is declared."""

from __future__ import annotations

import argparse
import json
from typing import Any

from dspark.output import write
from dspark.verb import FAILED, OK, Usage, add_rules_option, open_table

_DESCRIPTION = (
    "A parity pack says what one engine does with drafts. Where the table answers otherwise, the "
    "pack must declare it and say why, and what is declared must still be so. Exit code 1 if not."
)


def add_parity(verbs: Any) -> None:
    """Adds the verb to the command line's verbs."""
    parser: argparse.ArgumentParser = verbs.add_parser(
        "parity", help="hold the table against what engines do", description=_DESCRIPTION
    )
    parser.add_argument("packs", nargs="*", metavar="PACK", help="default: every pack that ships")
    parser.add_argument("--json", action="store_true", help="one JSON object per pack and line")
    add_rules_option(parser)
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    from dspark.parity import hold_together
    from dspark.parity_compile import shipped_packs
    from dspark.render_parity import parity_lines
    from dspark.spelling import did_you_mean

    table = open_table(arguments.rules)
    packs = {pack.name: pack for pack in shipped_packs()}
    for name in arguments.packs:
        if name not in packs:
            hint = did_you_mean(name, packs) or f"there are {', '.join(packs)}"
            raise Usage(f"no parity pack is called `{name}`; {hint}")
    passed = True
    for name in arguments.packs or packs:
        report = hold_together(table, packs[name])
        passed = passed and report.passed
        write([[json.dumps(report.to_json())]] if arguments.json else parity_lines(report))
    return OK if passed else FAILED
