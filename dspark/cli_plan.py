"""`dspark plan DRAFT --target TARGET`: what running a pair takes, before a weight is read."""

from __future__ import annotations

import argparse
import json
from typing import Any

from dspark.compiled import Table
from dspark.decision import Decision
from dspark.errors import Refused
from dspark.output import write

_DESCRIPTION = (
    "DRAFT and TARGET are a checkpoint folder, a config.json or a repo id owner/name[@revision]. "
    "Configs and tensor headers are read, never a weight; the target's weights need not be there."
)


def add_plan(verbs: Any) -> argparse.ArgumentParser:
    """Adds the verb to the command line's verbs and returns its parser."""
    parser: argparse.ArgumentParser = verbs.add_parser(
        "plan", help="check a draft and its target, and count bytes", description=_DESCRIPTION
    )
    parser.add_argument("draft", metavar="DRAFT")
    parser.add_argument("--target", required=True, metavar="TARGET")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument(
        "--max-seq",
        type=_count,
        metavar="N",
        help="longest sequence served, in tokens (default: all of the target's positions)",
    )
    parser.add_argument(
        "--batch", type=_count, default=1, metavar="B", help="sequences at a time (default: 1)"
    )
    parser.add_argument(
        "--memory",
        type=_size,
        metavar="BYTES",
        help="memory there is, such as 24GiB (default: the machine's on cpu, unknown on cuda)",
    )
    parser.add_argument("--json", action="store_true", help="the plan as one JSON object")
    return parser


def run_plan(arguments: argparse.Namespace, table: Table) -> Decision | None:
    """Prints the plan, or the decision that refused it, which it returns."""
    from dspark.planning import plan
    from dspark.render import decision_lines
    from dspark.render_plan import plan_lines

    try:
        planned = plan(
            arguments.draft,
            target=arguments.target,
            device=arguments.device,
            max_seq=arguments.max_seq,
            batch=arguments.batch,
            memory=arguments.memory,
            table=table,
        )
    except Refused as refusal:
        decision = refusal.decision
        if arguments.json:
            write([[json.dumps(decision.to_json())]])
        else:
            write(decision_lines(decision))
        return decision
    if arguments.json:
        write([[planned.model_dump_json()]])
    else:
        write(plan_lines(planned))
    return None


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < len(text) < 19) or int(text) < 1:
        raise argparse.ArgumentTypeError(f"`{text}` is not a whole number of 1 or more")
    return int(text)


def _size(text: str) -> int:
    from dspark.budget import parse_size

    try:
        size = parse_size(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"`{text}`: {error}") from None
    if size < 1:
        raise argparse.ArgumentTypeError(f"`{text}` is less than a byte")
    return size
