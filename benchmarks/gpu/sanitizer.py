"""Step 3: NVIDIA's own checkers over one test of each kernel."""

from __future__ import annotations

import os
import re
import subprocess
import sys

from benchmarks.gpu.bed import Bed
from benchmarks.gpu.notes import Notes, Skipped
from dspark.kernels.toolkit import find_program

TOOLS = ("memcheck", "synccheck", "racecheck")
_ERRORS = re.compile(r"(?:ERROR SUMMARY|RACECHECK SUMMARY): (\d+) ")


def run(bed: Bed) -> None:
    """Notes how many errors each checker finds, and its own words where it finds some."""
    if bed.rehearsal:
        raise Skipped("compute-sanitizer checks what runs on a GPU")
    program = find_program("compute-sanitizer")
    if program is None:
        raise Skipped("`compute-sanitizer` is neither with CUDA nor on the path")
    for tool in TOOLS:
        done = subprocess.run(
            [program, "--tool", tool, "--print-limit", "10", *subset()],
            env={**os.environ, "DSPARK_KERNEL_DEVICE": "cuda"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        note_errors(bed.notes, tool, done.returncode, done.stdout)


def subset() -> list[str]:
    """The command that is checked."""
    return [sys.executable, "-m", "benchmarks.gpu.subset"]


def note_errors(notes: Notes, tool: str, code: int, said: str) -> None:
    """Notes what `tool` printed: how many errors, and all of it if there are any, or no count."""
    summary = _ERRORS.search(said)
    if summary is not None:
        notes.figure(f"{tool}, errors", int(summary[1]), "errors")
    if summary is None or int(summary[1]) or code:
        notes.trouble(f"{tool} ended with {code}\n{said.strip()[-4000:]}")
