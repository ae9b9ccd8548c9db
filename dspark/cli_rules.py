"""`dspark rules`: every rule in a line."""

from __future__ import annotations

import argparse
import json
from typing import Any

from dspark.compile import read_messages
from dspark.output import Line, write
from dspark.verb import OK, add_rules_option, open_table


def add_rules(verbs: Any) -> None:
    """Adds the verb to the command line's verbs."""
    parser: argparse.ArgumentParser = verbs.add_parser("rules", help="list the rules")
    add_rules_option(parser)
    parser.add_argument("--json", action="store_true", help="one JSON object per rule and line")
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    table = open_table(arguments.rules)
    rules = [*table.rules.values(), *read_messages().values()]
    lines: list[Line] = []
    for rule in rules:
        if arguments.json:
            record = {"rule_id": rule.id, "name": rule.name, "lane": rule.lane}
            record["message"] = rule.refuse.text if rule.refuse else None
            lines.append([json.dumps(record)])
        else:
            outcome = f"lane {rule.lane}" if rule.lane is not None else "refused"
            lines.append([f"{rule.id}  {rule.name:<34} {outcome}"])
    write(lines)
    return OK
