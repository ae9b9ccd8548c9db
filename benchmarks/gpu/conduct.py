"""The steps: each in a process of its own with a budget, and the next whatever becomes of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from benchmarks.gpu.notes import Found, read

Status = Literal["ok", "failed", "skipped"]

_LONGEST_TEXT = 6000
"""What is kept of what a process said before it failed; the end is where the reason stands."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step; `module` of this package has a `run` that does it, within `budget` seconds.

    `needs_gpu` says whether it can do anything where there is none.
    """

    name: str
    title: str
    budget: float
    module: str
    needs_gpu: bool = True


STEPS = (
    Step("doctor", "card, driver, toolkit, kernels compiled", 30, "doctor", needs_gpu=False),
    Step("vectors", "tests of the kernels", 70, "vectors"),
    Step("sanitizer", "compute-sanitizer on tiny shapes", 45, "sanitizer"),
    Step("bandwidth", "how fast memory is read", 12, "bandwidth"),
    Step("skinny", "products of 1, 8 and 16 rows", 20, "skinny"),
    Step("launches", "what a launch costs", 8, "launch_cost"),
    Step("tiny", "the tiny pair against the CPU", 30, "tiny_pair"),
    Step("qwen3-8b", "decoding in Qwen3-8B's shape", 80, "qwen3_8b"),
)
"""In this order; the budgets come to less than five minutes."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a step; `texts` say why it failed or was skipped, in full."""

    step: Step
    status: Status
    seconds: float
    texts: list[str] = field(default_factory=list)
    found: Found = field(default_factory=Found)


Command = Callable[[Step, Path], Sequence[str]]
"""How a step that writes into a folder is started."""


def conduct(
    steps: Sequence[Step], command: Command, *, gpu_trouble: str | None = None
) -> Iterator[Outcome]:
    """Runs `steps`; the outcome of each once it is over.

    `gpu_trouble` is why there is no GPU; the steps that need one are then skipped for that.
    """
    with tempfile.TemporaryDirectory() as folder:
        for step in steps:
            if step.needs_gpu and gpu_trouble is not None:
                yield Outcome(step, "skipped", 0.0, [gpu_trouble])
            else:
                yield _run(step, command(step, Path(folder)), Path(folder))


def child(rehearsal: bool) -> Command:
    """Steps as this package runs them."""
    more = ["--rehearse"] if rehearsal else []

    def command(step: Step, folder: Path) -> Sequence[str]:
        return [sys.executable, "-m", "benchmarks.gpu", "--step", step.name, str(folder), *more]

    return command


def _run(step: Step, command: Sequence[str], folder: Path) -> Outcome:
    started = time.monotonic()
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        # A group of its own, so that what a step started ends with it.
        start_new_session=True,
    )
    try:
        said, _ = process.communicate(timeout=step.budget)
        late = False
    except subprocess.TimeoutExpired:
        late = True
    finally:
        _end(process.pid)
    if late:
        said, _ = process.communicate()
    found, seconds = read(folder, step.name), time.monotonic() - started
    texts = list(found.troubles)
    if late:
        texts.append(f"it was ended after its budget of {step.budget:g} s\n{_last(said)}".rstrip())
    elif process.returncode:
        texts.append(f"it ended with exit code {process.returncode}\n{_last(said)}".rstrip())
    elif not found.done and found.skipped is None:
        texts.append(f"it ended without a word\n{_last(said)}".rstrip())
    if texts:
        return Outcome(step, "failed", seconds, texts, found)
    if found.skipped is not None:
        return Outcome(step, "skipped", seconds, [found.skipped], found)
    return Outcome(step, "ok", seconds, [], found)


def _end(group: int) -> None:
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return


def _last(said: str) -> str:
    return said.strip()[-_LONGEST_TEXT:]
