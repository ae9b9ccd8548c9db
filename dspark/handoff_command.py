"""A hand-off as command lines: one for each node, each a list of words that no shell need read."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

from dspark.handed_over import Cluster, HandOff

PORT = 29501
"""Where the nodes of the engine's own backend find the first one; the engine's default."""
RAY_PORT = 6379


class Command(NamedTuple):
    """One command and the node to run it on."""

    node: int
    argv: tuple[str, ...]


def commands(handoff: HandOff) -> tuple[Command, ...]:
    """What to run, in order; on different nodes at the same time."""
    cluster = handoff.cluster
    words = serve(handoff)
    if cluster.nodes == 1:
        return (Command(0, words),)
    if cluster.backend == "ray":
        head = ("ray", "start", "--head", f"--port={RAY_PORT}")
        joins = ("ray", "start", f"--address={cluster.master_address}:{RAY_PORT}")
        others = [Command(node, joins) for node in range(1, cluster.nodes)]
        return (Command(0, head), *others, Command(0, words))
    return tuple(Command(node, (*words, *rank(cluster, node))) for node in range(cluster.nodes))


def serve(handoff: HandOff) -> tuple[str, ...]:
    """The command, but for what differs from node to node."""
    cluster = handoff.cluster
    words = ["vllm", "serve", handoff.target.name]
    if handoff.target.revision is not None:
        words += ["--revision", handoff.target.revision]
    if cluster.size > 1:
        words += ["--tensor-parallel-size", str(cluster.size)]
    if cluster.nodes > 1 and cluster.backend == "ray":
        words += ["--distributed-executor-backend", "ray"]
    words += handoff.recipe.arguments
    return (*words, "--speculative-config", json.dumps(handoff.speculative_config))


def rank(cluster: Cluster, node: int) -> Sequence[str]:
    """What the engine's own backend is told on one of several nodes."""
    words = ["--nnodes", str(cluster.nodes), "--node-rank", str(node)]
    words += ["--master-addr", str(cluster.master_address), "--master-port", str(PORT)]
    return words if node == 0 else [*words, "--headless"]


def to_json(handoff: HandOff) -> dict[str, object]:
    """The object that `--format json` prints (schema: `handoff.schema.json`)."""
    decision = handoff.decision
    return {
        "engine": handoff.table.engine,
        "version": handoff.table.version,
        "rule_id": decision.rule_id,
        "name": decision.name,
        "lane": decision.lane,
        "recipe": handoff.recipe.name,
        "speculative_config": handoff.speculative_config,
        "commands": [{"node": each.node, "argv": list(each.argv)} for each in commands(handoff)],
        "table_version": decision.table_version,
    }
