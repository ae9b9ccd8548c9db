"""`dspark plan DRAFT --target TARGET`: what running a pair takes, before a weight is read."""

from __future__ import annotations

import argparse
import json
import re
from typing import TYPE_CHECKING, Any

from dspark.errors import Refused
from dspark.output import write
from dspark.verb import OK, Usage, add_rules_option, exit_code, open_table

if TYPE_CHECKING:
    from dspark.load_plan import LoadPlan

_DESCRIPTION = (
    "DRAFT and TARGET are a checkpoint folder, a config.json or a repo id owner/name[@revision]. "
    "Configs and tensor headers are read, never a weight; the target's weights need not be there."
)


def add_plan(verbs: Any) -> None:
    """Adds the verb to the command line's verbs."""
    parser: argparse.ArgumentParser = verbs.add_parser(
        "plan", help="check a draft and its target, and count bytes", description=_DESCRIPTION
    )
    parser.add_argument("draft", metavar="DRAFT")
    parser.add_argument("--target", required=True, metavar="TARGET")
    parser.add_argument(
        "--device",
        choices=("cuda", "cpu"),
        default="cuda",
        help="what it is planned for (default: cuda; what decodes takes cpu unless told)",
    )
    parser.add_argument(
        "--max-seq",
        type=count,
        metavar="N",
        help="longest sequence served, in tokens (default: all of the target's positions)",
    )
    parser.add_argument(
        "--batch", type=count, default=1, metavar="B", help="sequences at a time (default: 1)"
    )
    parser.add_argument(
        "--memory",
        type=size,
        metavar="BYTES",
        help="memory there is, such as 24GiB (default: the machine's on cpu, unknown on cuda)",
    )
    parser.add_argument(
        "--cost", action="store_true", help="also what a round reads, writes and launches"
    )
    parser.add_argument(
        "--context",
        type=count,
        metavar="N",
        help="with --cost: committed positions of each sequence (default: 2048, or what fits)",
    )
    parser.add_argument(
        "--bandwidth",
        type=_bandwidth,
        metavar="GB/S",
        help="with --cost: memory bandwidth, for the least time that a round can take",
    )
    parser.add_argument(
        "--json", action="store_true", help="the plan, or with --cost the cost, as one JSON object"
    )
    add_rules_option(parser)
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    table = open_table(arguments.rules)
    for option in ("context", "bandwidth"):
        if getattr(arguments, option) is not None and not arguments.cost:
            raise Usage(f"--{option} says nothing without --cost")
    if arguments.json and arguments.bandwidth is not None:
        raise Usage("--bandwidth says nothing with --json, which holds bytes and no times")
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
        return exit_code(decision)
    if arguments.cost:
        _write_cost(arguments, planned)
        return OK
    if arguments.json:
        write([[planned.model_dump_json()]])
    else:
        write(plan_lines(planned))
    return OK


def _write_cost(arguments: argparse.Namespace, planned: LoadPlan) -> None:
    from dspark.cost import cost, most_context
    from dspark.render_cost import cost_lines
    from dspark.render_plan import plan_lines

    most = most_context(planned)
    context = min(2048, most) if arguments.context is None else arguments.context
    if most < 0:
        raise Usage(f"a round does not fit into the {planned.max_seq} tokens of this plan")
    if context > most:
        raise Usage(f"a round has no room behind {context} positions: {most} is the most")
    found = cost(planned, context)
    if arguments.json:
        write([[json.dumps(found.to_json())]])
        return
    write(plan_lines(planned))
    write(cost_lines(found, arguments.bandwidth))


def count(text: str) -> int:
    """A whole number of 1 or more, for argparse."""
    if not (text.isascii() and text.isdigit() and 0 < len(text) < 19) or int(text) < 1:
        raise argparse.ArgumentTypeError(f"`{text}` is not a whole number of 1 or more")
    return int(text)


def _bandwidth(text: str) -> float:
    if re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", text) is None or float(text) <= 0:
        raise argparse.ArgumentTypeError(f"`{text}` is not a number of GB/s above 0, such as 3350")
    return float(text)


def size(text: str) -> int:
    """A number of bytes of 1 or more, such as `24GiB`, for argparse."""
    from dspark.budget import parse_size

    try:
        found = parse_size(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"`{text}`: {error}") from None
    if found < 1:
        raise argparse.ArgumentTypeError(f"`{text}` is less than a byte")
    return found
