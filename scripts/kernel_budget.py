"""What each kernel costs on each architecture, held against what was committed: `scripts/kernels`.

NVRTC compiles for GPUs that are not there, and the machine code tells the rest: registers, spills,
shared memory, whether loads are 128 bits wide and whether tensor cores are used. `--write` records
what was found as the new budget; it keeps the claims, which are written by hand.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dspark.kernels.cubins import ARCHITECTURES, Compiler, open_compiler
from dspark.kernels.errors import ToolkitMissing
from dspark.kernels.signatures import FOLDER, kernels_in
from dspark.kernels.toolkit import find_program

BUDGET = FOLDER / "budget.json"
REWRITE = "run `scripts/kernels --write` and look at the difference"
MOST_REGISTERS = 128
"""More leaves fewer than 16 warps on a multiprocessor, too few to hide a load behind."""

_USAGE = re.compile(r"Function (\S+):\s*REG:(\d+) STACK:\d+ SHARED:(\d+)")
_BODY = re.compile(r"Function : (\S+)\n(.*?)(?=Function : |\Z)", re.S)
_SPILL = re.compile(r"\b(?:LDL|STL)\b")
_COUNTED = {
    # An architecture that can load 256 bits at once merges two loads of 128.
    "vector_loads": re.compile(r"\bLDG\S*\.(?:128|256)\b|\bLDGSTS\S*\.128\b|\bUBLKCP\b"),
    "tensor_ops": re.compile(r"\b[HQ]MMA\b"),
}


@dataclass(frozen=True, slots=True)
class Cost:
    """One kernel on one architecture; the last two are counted in its machine code."""

    registers: int
    shared_bytes: int
    spills: int
    vector_loads: int
    tensor_ops: int


Costs = Mapping[str, Mapping[str, Cost]]
"""Kernel -> architecture, as `sm_90` -> what it costs there."""


def measure(compiler: Compiler, architectures: Sequence[int] = ARCHITECTURES) -> Costs:
    """What every kernel costs on every architecture it is compiled for."""
    costs: dict[str, dict[str, Cost]] = {name: {} for name in kernels_in()}
    for file in sorted({signature.file for signature in kernels_in().values()}):
        for architecture in architectures:
            for name, cost in _costs(compiler.cubin(file, architecture)):
                costs[name][f"sm_{architecture}"] = cost
    return costs


def problems(costs: Costs, budget: Mapping[str, Any], toolkit: str) -> list[str]:
    """Everything that is worse than it may be, or differs from what was committed."""
    if budget["toolkit"] != toolkit:
        return [
            f"the budget is that of NVRTC {budget['toolkit']}, and this is {toolkit}: {REWRITE}"
        ]
    found = []
    for name, per_architecture in costs.items():
        for architecture, cost in per_architecture.items():
            found += [f"{name} on {architecture} {fault}" for fault in _faults(name, cost, budget)]
    now = _as_json(costs)
    for name in sorted({*now, *budget["kernels"]}):
        was, is_now = budget["kernels"].get(name, {}), now.get(name, {})
        for architecture in sorted({*was, *is_now}):
            if was.get(architecture) != is_now.get(architecture):
                changed = f"{was.get(architecture)} -> {is_now.get(architecture)}"
                found.append(f"{name} on {architecture} changed: {changed}: {REWRITE}")
    unknown = {name for names in budget["claims"].values() for name in names} - set(costs)
    found += [f"a claim is about `{name}`, which is no kernel" for name in sorted(unknown)]
    return found


def table(costs: Costs) -> Iterator[str]:
    """The costs as lines of text."""
    yield f"{'kernel':28}{'arch':8}{'regs':>5}{'smem':>7}{'spills':>8}{'128-bit':>9}{'mma':>5}"
    for name, per_architecture in costs.items():
        for architecture, cost in per_architecture.items():
            yield (
                f"{name:28}{architecture:8}{cost.registers:5}{cost.shared_bytes:7}"
                f"{cost.spills:8}{cost.vector_loads:9}{cost.tensor_ops:5}"
            )


def _faults(name: str, cost: Cost, budget: Mapping[str, Any]) -> Iterator[str]:
    if cost.spills:
        yield f"spills {cost.spills} times to local memory"
    if cost.registers > MOST_REGISTERS:
        yield f"takes {cost.registers} registers, beyond {MOST_REGISTERS}"
    for claim, names in budget["claims"].items():
        if name in names and not getattr(cost, claim):
            yield f"has no {claim.replace('_', ' ')}, which are claimed"


def _costs(cubin: Path) -> Iterator[tuple[str, Cost]]:
    usage, code = _cuobjdump("-res-usage", cubin), _cuobjdump("-sass", cubin)
    bodies = dict(_BODY.findall(code))
    for name, registers, shared in _USAGE.findall(usage):
        body = bodies[name]
        counts = {what: len(pattern.findall(body)) for what, pattern in _COUNTED.items()}
        spills = len(_SPILL.findall(body))
        yield name, Cost(int(registers), int(shared), spills, **counts)


def _cuobjdump(what: str, cubin: Path) -> str:
    program = find_program("cuobjdump")
    if program is None:
        raise ToolkitMissing("cuobjdump is neither installed as a wheel nor with CUDA")
    # It finds nvdisasm beside itself, or else on the path.
    shown = subprocess.run([program, what, cubin], capture_output=True, text=True, check=True)
    return shown.stdout


def _as_json(costs: Costs) -> dict[str, dict[str, dict[str, int]]]:
    return {
        name: {architecture: asdict(cost) for architecture, cost in found.items()}
        for name, found in costs.items()
    }


def main(arguments: Sequence[str]) -> int:
    """Prints the table; returns 1 where something is wrong with it."""
    if {"-h", "--help"} & set(arguments):
        print(__doc__)
        return 0
    compiler = open_compiler()
    toolkit = "{}.{}".format(*compiler.nvrtc.version)
    costs = measure(compiler)
    print("\n".join(table(costs)))
    budget = json.loads(BUDGET.read_text(encoding="utf-8"))
    if "--write" in arguments:
        budget |= {"toolkit": toolkit, "kernels": _as_json(costs)}
        BUDGET.write_text(_compact(budget), encoding="utf-8")
    found = problems(costs, budget, toolkit)
    print("\n".join(found) or f"all within {BUDGET.name}, NVRTC {toolkit}")
    return 1 if found else 0


def _compact(budget: Mapping[str, Any]) -> str:
    """JSON with one line for each kernel and architecture, so that a difference is readable."""
    text = json.dumps(budget, indent=2)
    inner = re.compile(r"\{\s*(\"registers\"[^{}]*?)\s*\}")
    text = inner.sub(lambda row: "{" + re.sub(r"\s+", " ", row[1]) + "}", text)
    return text + "\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
