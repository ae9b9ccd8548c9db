"""How fast the router is, as ratios to things measured in the same run, each with a limit.

`scripts/bench route` prints every figure and exits with 1 if a limit is missed. What is measured,
and why so: docs/performance-routing.md.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import tempfile
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

from benchmarks import peers, tables
from benchmarks.peers import Peer
from benchmarks.tables import Facts, Row
from benchmarks.timing import Call, Sample, pin, time_calls, time_commands, time_once
from dspark.compile import compile_table, compile_text
from dspark.compiled import Table
from dspark.graph import decide
from dspark.observe import observe_config
from dspark.routing import decide_source, route

SMALL, LARGE = 12, 10_000
CORPUS = Path(__file__).resolve().parent.parent / "tests" / "corpus"
_REFUSED_OR_NOT = (0, 3, 4)  # exit codes of a route that worked


class Gate(NamedTuple):
    """One limit and how far the measurement was from it."""

    name: str
    measured: float
    limit: float | None
    """None: a figure that belongs beside the gates, and that nothing is required of."""
    unit: str
    at_least: bool = False

    @property
    def met(self) -> bool:
        if self.limit is None:
            return True
        return self.measured >= self.limit if self.at_least else self.measured <= self.limit

    def __str__(self) -> str:
        measured = f"{self.measured:.2f} {self.unit}"
        if self.limit is None:
            return f"{self.name:<52} {measured:>10}  {'none':>10}  not gated"
        limit = f"{'>=' if self.at_least else '<='} {self.limit:g} {self.unit}"
        return f"{self.name:<52} {measured:>10}  {limit:>10}  {'ok' if self.met else 'MISSED'}"


def measure_decisions() -> list[Gate]:
    """A decision against two bare dict look-ups, in a small and in a large table."""
    gates = []
    for count in (SMALL, LARGE):
        rows = tables.rows(count)
        table = _compiled(rows)
        floor = peers.floor(rows)
        ours = [on_cells(table), on_observation(table), on_config(table)]
        samples = measure([floor, *ours], rows, f"{count} rules, ns per decision: minimum (median)")
        for probe, found in samples.items():
            ratio = found[ours[0].name].minimum / found[floor.name].minimum
            gates.append(Gate(f"decision / dict look-ups, {count} rules, {probe}", ratio, 3, "x"))
    return gates


def measure_peers() -> list[Gate]:
    """A decision against the same one by packaged engines, each by its fastest path."""
    rows = tables.rows(SMALL)
    table = _compiled(rows)
    ours = on_cells(table)
    by_engine = {engine: make(rows) for engine, make in peers.ENGINES.items()}
    everyone = [ours, on_config(table), *(path for paths in by_engine.values() for path in paths)]
    samples = measure(everyone, rows, f"{SMALL} rules, ns per decision: minimum (median)")

    def ratio(names: Sequence[str]) -> float:
        """Of the fastest of `names` to us, for the probe that suits us least."""
        return min(
            min(found[name].minimum for name in names) / found[ours.name].minimum
            for found in samples.values()
        )

    gates = []
    for engine, paths in by_engine.items():
        names = [path.name for path in paths if path.name != peers.ZEN_EXPRESSION]
        label = f"{engine} {version(engine)} / decision"
        gates.append(Gate(label, ratio(names), 10, "x", at_least=True))
    # No table stands behind an expression, so it is no rival; but it is closer than any of them.
    gates.append(Gate(peers.ZEN_EXPRESSION, ratio([peers.ZEN_EXPRESSION]), None, "x"))
    return gates


def measure_compile() -> list[Gate]:
    """The compile of a large table with every analysis, and how it grows."""
    samples = {}
    for count in (LARGE, 2 * LARGE):
        text = tables.yaml_text(tables.rows(count)).encode()
        samples[count] = time_once(partial(compile_text, text, "made-up.yaml"), repeats=3)
        _say(f"compile of {count} rules, {len(text) / 1e6:.1f} MB", samples[count], 1, "s")
    growth = samples[2 * LARGE].minimum / samples[LARGE].minimum
    return [
        Gate(f"compile of {LARGE} rules", samples[LARGE].minimum, 2, "s"),
        Gate(f"compile of {2 * LARGE} rules / of {LARGE}", growth, 2.5, "x"),
    ]


def measure_start() -> list[Gate]:
    """`python -m dspark.route DIR` against a Python that does nothing."""
    checkpoint = str(CORPUS / "deepseek-ai__dspark_qwen3_4b_block7")
    commands = {
        "python -c pass": [sys.executable, "-c", "pass"],
        "python -m dspark.route DIR": [sys.executable, "-m", "dspark.route", checkpoint],
    }
    with tempfile.TemporaryDirectory() as folder:
        samples = time_commands(commands, 21, folder, _REFUSED_OR_NOT)
    for name, sample in samples.items():
        _say(name, sample, 1e3, "ms")
    nothing, route = samples.values()
    return [Gate("python -m dspark.route / python -c pass", route.median / nothing.median, 10, "x")]


def measure_many() -> list[Gate]:
    """One call for 1,000 checkpoints; every fourth has an architecture of its own, misspelt."""
    configs = [path.read_bytes() for path in sorted(CORPUS.glob("*/config.json"))]
    with tempfile.TemporaryDirectory() as folder:
        for number in range(1000):
            data = configs[number % len(configs)]
            if number % 4 == 3:
                misspelt = {"architectures": [f"Qwen3DSparkModle{number}"]}
                data = json.dumps({**json.loads(data), **misspelt}).encode()
            checkpoint = Path(folder, f"checkpoint-{number:04}")
            checkpoint.mkdir()
            (checkpoint / "config.json").write_bytes(data)
        command = [sys.executable, "-m", "dspark.route", "--recursive", folder]
        sample = time_commands({"route": command}, 5, folder, _REFUSED_OR_NOT)["route"]
    _say("python -m dspark.route --recursive, 1,000 checkpoints", sample, 1e3, "ms")
    return [Gate("1,000 checkpoints in one call", sample.median, 1, "s")]


def measure_check() -> list[Gate]:
    """`dspark check` of the shipped table: its tests and every mutant."""
    command = [sys.executable, "-c", "import sys, dspark.cli; sys.exit(dspark.cli.main(['check']))"]
    with tempfile.TemporaryDirectory() as folder:
        # 1: a test fails or a mutant survives, which is for `dspark check` itself to say.
        sample = time_commands({"check": command}, 2, folder, (0, 1))["check"]
    _say("dspark check", sample, 1, "s")
    return [Gate("dspark check", sample.minimum, 10, "s")]


def measure_log() -> list[Gate]:
    """`dspark.route` of a folder while nobody listens, against the same without that look."""
    checkpoint = str(CORPUS / "deepseek-ai__dspark_qwen3_4b_block7")
    table = compile_table()
    routed, decided = "dspark.route, nobody listening", "the same, announcing nothing"
    samples = time_calls(
        {
            routed: Call(partial(route, table=table), (checkpoint,)),
            decided: Call(decide_source, (table, checkpoint)),
        },
        repeats=21,
    )
    for name, sample in samples.items():
        _say(name, sample, 1e6, "us")
    ratio = samples[routed].minimum / samples[decided].minimum
    return [Gate(f"{routed} / {decided}", ratio, 1.1, "x")]


SECTIONS: dict[str, Callable[[], list[Gate]]] = {
    "decisions": measure_decisions,
    "log": measure_log,
    "peers": measure_peers,
    "compile": measure_compile,
    "start": measure_start,
    "many": measure_many,
    "check": measure_check,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the sections, prints their figures and then every gate; 1 if one is missed."""
    parser = argparse.ArgumentParser(prog="scripts/bench route", description=main.__doc__)
    # argparse holds the empty list, which means all of them, against `choices` too.
    parser.add_argument(
        "sections", nargs="*", choices=[*SECTIONS, []], metavar="SECTION", help=", ".join(SECTIONS)
    )
    chosen = parser.parse_args(argv).sections or list(SECTIONS)
    core = pin()
    _print(f"{_processor()}, core {core}; {platform.system()} {platform.machine()}")
    _print(f"{platform.python_implementation()} {platform.python_version()}, {_today()}")
    gates = []
    for section in chosen:
        _print("")
        gates += SECTIONS[section]()
    _print("")
    for gate in gates:
        _print(str(gate))
    return 0 if all(gate.met for gate in gates) else 1


def _compiled(rows: Sequence[Row]) -> Table:
    return compile_text(tables.yaml_text(rows).encode(), "made-up.yaml")


def on_cells(table: Table) -> Peer:
    """The graph itself, given the cells: what the limits are about."""
    root, width = table.built.root, len(table.facts)
    return Peer(
        "dspark: graph, on cells",
        lambda facts: Call(decide, (root, tuple(facts[:width]))),
        lambda rule: str(rule.id),
    )


def on_observation(table: Table) -> Peer:
    """The same with a Decision around the rule, its refusal written out."""
    return Peer(
        "dspark: Table.decide, on an observation",
        lambda facts: Call(table.decide, (observe_config(_config(facts)),)),
        lambda decision: str(decision.rule_id),
    )


def on_config(table: Table) -> Peer:
    """All of it, from a parsed config.json."""
    return Peer(
        "dspark: Table.route, on a config",
        lambda facts: Call(table.route, (_config(facts),)),
        lambda decision: str(decision.rule_id),
    )


def _config(facts: Facts) -> dict[str, object]:
    return {"architectures": [facts.architecture], "model_type": facts.model_type}


def measure(ways: Sequence[Peer], rows: Sequence[Row], title: str) -> dict[str, dict[str, Sample]]:
    """Samples by probe and way, and a printed line for each way; exits if one answers wrongly."""
    probes = tables.probes(rows)
    wrong = [line for way in ways for line in peers.disagreements(way, probes)]
    if wrong:
        raise SystemExit("\n".join(wrong))
    samples = {
        probe: time_calls({way.name: way.call(facts) for way in ways})
        for probe, (facts, _) in probes.items()
    }
    _print(f"{title:<60}" + "".join(f"{probe:>24}" for probe in probes))
    for way in ways:
        found = [samples[probe][way.name] for probe in probes]
        cells = [f"{s.minimum * 1e9:,.0f} ({s.median * 1e9:,.0f})" for s in found]
        _print(f"  {way.name:<58}" + "".join(f"{cell:>24}" for cell in cells))
    return samples


def _say(name: str, sample: Sample, scale: float, unit: str) -> None:
    minimum, median = sample.minimum * scale, sample.median * scale
    _print(f"{name:<60} minimum {minimum:.2f} {unit}, median {median:.2f} {unit}")


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()


def _today() -> str:
    return datetime.now(UTC).date().isoformat()


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
