"""`dspark handoff ENGINE CHECKPOINT --target TARGET`: what makes another engine serve a pair."""

from __future__ import annotations

import argparse
import json
import shlex
from typing import Any

from dspark.cli_plan import count
from dspark.errors import Refused
from dspark.output import Line, write
from dspark.verb import OK, Usage, add_rules_option, exit_code, open_table

_DESCRIPTION = (
    "CHECKPOINT and TARGET are a checkpoint folder, a config.json or a repo id "
    "owner/name[@revision]. Only the configs are read. What the engine would run as something else "
    "is refused."
)


_FORMATS = ("command", "json", "compose", "k8s")


def add_handoff(verbs: Any) -> None:
    """Adds the verb to the command line's verbs."""
    parser: argparse.ArgumentParser = verbs.add_parser(
        "handoff", help="print the command that serves a pair elsewhere", description=_DESCRIPTION
    )
    parser.add_argument("engine", choices=("vllm",), metavar="ENGINE", help="vllm (0.33)")
    parser.add_argument("checkpoint", metavar="CHECKPOINT")
    parser.add_argument(
        "--target", metavar="TARGET", help="left out for a draft that lives inside its target"
    )
    parser.add_argument(
        "--gpus", type=count, default=1, metavar="N", help="GPUs of each node (default: 1)"
    )
    parser.add_argument("--nodes", type=count, default=1, metavar="M", help="machines (default: 1)")
    parser.add_argument(
        "--master-addr", metavar="HOST", help="where node 0 is reached, with several nodes"
    )
    parser.add_argument(
        "--backend", choices=("mp", "ray"), default="mp", help="what joins the nodes (default: mp)"
    )
    parser.add_argument(
        "--num-speculative-tokens",
        type=count,
        metavar="K",
        help="draft tokens at a time (default: as many as the config says)",
    )
    parser.add_argument("--format", choices=_FORMATS, default="command")
    add_rules_option(parser)
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    from dspark.handoff import hand_off
    from dspark.render import decision_lines

    table = open_table(arguments.rules)
    address = arguments.master_addr
    if arguments.format == "k8s" and arguments.nodes > 1:
        if arguments.backend == "ray":
            raise Usage("--format k8s starts no Ray cluster; use KubeRay, or --backend mp")
        address = "by-name"  # the objects name their nodes
    if arguments.format == "compose" and arguments.nodes > 1 and arguments.backend == "ray":
        raise Usage("--format compose starts no Ray cluster; use --backend mp")
    if "-" in (arguments.checkpoint, arguments.target):
        raise Usage("an engine opens a folder or a repo id, and standard input is neither")
    if arguments.nodes > 1 and not address:
        raise Usage("several nodes need --master-addr HOST, where node 0 is reached")
    try:
        found = hand_off(
            arguments.checkpoint,
            target=arguments.target,
            gpus=arguments.gpus,
            nodes=arguments.nodes,
            backend=arguments.backend,
            master_address=address,
            num_speculative_tokens=arguments.num_speculative_tokens,
            table=table,
        )
    except Refused as refusal:
        decision = refusal.decision
        as_json = arguments.format == "json"
        write([[json.dumps(decision.to_json())]] if as_json else decision_lines(decision))
        return exit_code(decision)
    write(_lines(found, arguments.format))
    return OK


def _lines(found: Any, shape: str) -> list[Line]:
    from dspark.handoff_command import commands, to_json

    if shape == "json":
        return [[json.dumps(to_json(found))]]
    if shape in ("compose", "k8s"):
        from dspark.handoff_files import compose, kubernetes

        text = compose(found) if shape == "compose" else kubernetes(found)
        return [[line] for line in text.splitlines()]
    lines: list[Line] = []
    for command in commands(found):
        if found.cluster.nodes > 1:
            lines.append([f"# on node {command.node}"])
        lines.append([shlex.join(command.argv)])
    return lines
