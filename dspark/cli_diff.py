"""`dspark diff OLD NEW`: which configs two tables decide differently."""

from __future__ import annotations

import argparse
import json
from typing import Any

from dspark.output import write
from dspark.verb import FAILED, OK, open_table


def add_diff(verbs: Any) -> None:
    """Adds the verb to the command line's verbs."""
    parser: argparse.ArgumentParser = verbs.add_parser(
        "diff", help="which configs two tables decide differently"
    )
    parser.add_argument("old", metavar="OLD")
    parser.add_argument("new", metavar="NEW")
    parser.add_argument("--json", action="store_true", help="one JSON object per change and line")
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    from dspark.compare import compare_tables
    from dspark.render import difference_lines

    old, new = open_table(arguments.old), open_table(arguments.new)
    differences = compare_tables(old, new)
    if arguments.json:
        write([json.dumps(change.to_json())] for change in differences)
    elif differences:
        write(difference_lines(differences))
        count = len(differences)
        write([[f"{count} kind{'s' * (count > 1)} of config change{'s' * (count == 1)} decision"]])
    else:
        write([["no config changes decision"]])
    return FAILED if differences else OK
