"""How long a plan takes beyond the start of the process, each figure with its limit.

`scripts/bench plan` prints every figure and exits with 1 if a limit is missed. What is measured,
and why so: docs/planning.md.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path

from benchmarks.route import CORPUS, Gate
from benchmarks.timing import Sample, pin, time_commands
from dspark.canonical import canonicalise
from dspark.contract_reader import load_contract, load_target_contract
from dspark.match_tensors import needed_shapes

DRAFT, TARGET = "deepseek-ai__dspark_qwen3_4b_block7", "Qwen__Qwen3-4B"
RULE = "qwen3-dspark-native"
SHARDS = 200

Shapes = Mapping[str, tuple[int, ...]]

PLANS = """
import sys, time
import dspark.assemble, dspark.planning
from dspark.contract_reader import load_contract, load_target_contract
from dspark.routing import default_table
default_table()
clock = [time.process_time()]
load_contract("qwen3-dspark"), load_target_contract()
clock.append(time.process_time())
plan = dspark.plan(sys.argv[1], target=sys.argv[2])
clock.append(time.process_time())
again = dspark.plan(sys.argv[1], target=sys.argv[2])
clock.append(time.process_time())
assert plan == again and plan.bytes.target_weights_from == "headers"
print(*(after - before for before, after in zip(clock, clock[1:])))
print(len(plan.draft.tensors), len(plan.target.tensors), len(plan.target.files))
"""
"""CPU seconds: the contracts, the first plan of the process, the next one."""


def write_checkpoint(folder: Path, name: str, shapes: Shapes, shards: int = 1) -> str:
    """A published config with sparse weights of its true shapes; returns the folder."""
    folder.mkdir()
    (folder / "config.json").write_bytes((CORPUS / name / "config.json").read_bytes())
    names = sorted(shapes)
    if shards == 1:
        _write(folder / "model.safetensors", {name: shapes[name] for name in names})
        return str(folder)
    index = {}
    for number in range(shards):
        file = f"model-{number + 1:05}-of-{shards:05}.safetensors"
        part = names[number::shards]
        _write(folder / file, {name: shapes[name] for name in part})
        index |= dict.fromkeys(part, file)
    document = json.dumps({"metadata": {}, "weight_map": index})
    (folder / "model.safetensors.index.json").write_text(document, encoding="utf-8")
    return str(folder)


def _write(file: Path, shapes: Shapes) -> None:
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, shape in shapes.items():
        start, end = end, end + 2 * prod(shape)
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    with file.open("wb") as out:
        out.write(len(text).to_bytes(8, "little") + text)
        out.truncate(8 + len(text) + end)


def draft_shapes() -> Shapes:
    """The tensors of the published draft."""
    contract = load_contract("qwen3-dspark")
    config = json.loads((CORPUS / DRAFT / "config.json").read_text(encoding="utf-8"))
    return needed_shapes(contract, canonicalise(contract, config, RULE, None).values) | {
        "confidence_head.proj.weight": (1, 2560 + 256),
        "embed_tokens.weight": (151936, 2560),
        "lm_head.weight": (151936, 2560),
    }


def target_shapes() -> Shapes:
    """The tensors of the published target."""
    contract = load_target_contract().contract
    config = json.loads((CORPUS / TARGET / "config.json").read_text(encoding="utf-8"))
    return needed_shapes(contract, canonicalise(contract, config, "", None).values)


def plans(draft: str, target: str, repeats: int) -> tuple[list[Sample], str]:
    """CPU seconds of the contracts, the first and the next plan, and what was planned."""
    runs, sizes = [], ""
    for _ in range(repeats):
        command = [sys.executable, "-c", PLANS, draft, target]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        seconds, sizes = done.stdout.splitlines()
        runs.append([float(each) for each in seconds.split()])
    return [Sample.of(column) for column in zip(*runs, strict=True)], sizes


def measure(folder: Path, repeats: int) -> list[Gate]:
    """Every figure, with the limits that it has to meet."""
    draft = write_checkpoint(folder / "draft", DRAFT, draft_shapes())
    one = write_checkpoint(folder / "one", TARGET, target_shapes())
    many = write_checkpoint(folder / "many", TARGET, target_shapes(), SHARDS)
    gates = []
    for name, target, limit in (("one file", one, 30), (f"{SHARDS} shards", many, 150)):
        (contracts, first, following), sizes = plans(draft, target, repeats)
        _print(f"a target in {name}; tensors of draft and target, target's files: {sizes}")
        _say("  contracts of the lane and of the target", contracts)
        _say("  first plan", first)
        _say("  next plan", following)
        gates.append(Gate(f"first plan, target in {name}", first.minimum * 1e3, limit, "ms"))
    command = "import sys, dspark.cli; sys.exit(dspark.cli.main())"
    dspark = [sys.executable, "-c", command]
    commands = {
        "python -c pass": [sys.executable, "-c", "pass"],
        "dspark route DRAFT": [*dspark, "route", draft],
        "dspark route --check DRAFT": [*dspark, "route", "--check", draft],
        "dspark plan DRAFT --target TARGET": [*dspark, "plan", draft, "--target", one],
    }
    for name, sample in time_commands(commands, repeats, str(folder)).items():
        _say(name, sample)
    return gates


def main(argv: Sequence[str] | None = None) -> int:
    """Prints the figures and then every gate; 1 if one is missed."""
    parser = argparse.ArgumentParser(prog="scripts/bench plan", description=main.__doc__)
    parser.add_argument("--repeats", type=int, default=11, help="processes per figure")
    repeats: int = parser.parse_args(argv).repeats
    pin()
    with tempfile.TemporaryDirectory() as folder:
        gates = measure(Path(folder), repeats)
    for gate in gates:
        _print(str(gate))
    return 0 if all(gate.met for gate in gates) else 1


def _say(name: str, sample: Sample) -> None:
    minimum, median = sample.minimum * 1e3, sample.median * 1e3
    _print(f"{name:<64} minimum {minimum:.1f} ms, median {median:.1f} ms")


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
