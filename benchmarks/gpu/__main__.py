"""`scripts/gpu`: all steps, a table, and JSON; see the package."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path

from benchmarks.gpu.conduct import STEPS, Command, Step, child, conduct
from benchmarks.gpu.notes import Notes, Skipped
from benchmarks.gpu.report import REHEARSAL, lines, to_json
from dspark.kernels.errors import AllocationError, ToolkitMissing
from dspark.kernels.machine import look

OK, FAILED, NO_GPU = 0, 1, 3


def main(argv: Sequence[str] | None = None, command: Command | None = None) -> int:
    """Prints the table and writes the JSON; 1 if a step failed, 3 if there is no GPU."""
    arguments = _parser().parse_args(argv)
    if arguments.step is not None:
        return run_step(arguments.step[0], Path(arguments.step[1]), rehearsal=arguments.rehearse)
    trouble = None if arguments.rehearse else look().trouble
    if arguments.rehearse:
        _print(REHEARSAL)
    steps = [step for step in STEPS if not arguments.only or step.name in arguments.only]
    if arguments.rehearse:
        # Others may be busy on this machine too, and nothing is timed.
        steps = [replace(step, budget=10 * step.budget) for step in steps]
    outcomes = []
    for outcome in conduct(steps, command or child(arguments.rehearse), gpu_trouble=trouble):
        outcomes.append(outcome)
        _print("\n".join(lines(outcome)))
    found = json.dumps(to_json(outcomes, rehearsal=arguments.rehearse), indent=1)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(found + "\n", encoding="utf-8")
    _print(f"written to {arguments.out}")
    if trouble is not None:
        return NO_GPU
    return FAILED if any(each.status == "failed" for each in outcomes) else OK


def run_step(name: str, folder: Path, *, rehearsal: bool) -> int:
    """Does one step in this process, and leaves its notes in `folder`.

    What it raises beyond that ends the process: whoever started it reads it.
    """
    step = next(step for step in STEPS if step.name == name)
    notes = Notes(folder, name, rehearsal=rehearsal)
    try:
        _do(step, folder, rehearsal=rehearsal)
    except Skipped as reason:
        notes.skipped(str(reason))
    except (ToolkitMissing, AllocationError) as lack:
        # What a machine has not is no fault of the code, and says what it is.
        notes.trouble(str(lack))
        notes.done()
    else:
        notes.done()
    return OK


def _do(step: Step, folder: Path, *, rehearsal: bool) -> None:
    from benchmarks.gpu.bed import open_bed

    module = import_module(f"benchmarks.gpu.{step.module}")
    if step.needs_gpu:
        module.run(open_bed(folder, step.name, rehearsal=rehearsal))
    else:
        module.run(Notes(folder, step.name, rehearsal=rehearsal), rehearsal=rehearsal)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="scripts/gpu", description=main.__doc__)
    names = [step.name for step in STEPS]
    parser.add_argument("--only", nargs="+", choices=names, help="these steps alone")
    parser.add_argument(
        "--out", type=Path, default=Path("build/gpu.json"), help="the JSON (default: %(default)s)"
    )
    parser.add_argument(
        "--rehearse", action="store_true", help="tiny sizes on the simulator, and no figures"
    )
    parser.add_argument("--step", nargs=2, metavar=("STEP", "FOLDER"), help=argparse.SUPPRESS)
    return parser


def _print(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
