"""Step 2: the tests of the kernels, with the GPU in the simulator's place."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from xml.etree import ElementTree as ET

from benchmarks.gpu.bed import Bed
from benchmarks.gpu.notes import Notes

_ALONE = (
    # Plugins that lie around on a machine, and settings made for another version of pytest.
    *("-q", "-m", "not slow", "-p", "no:cacheprovider", "--import-mode=importlib"),
    *("-o", "pythonpath=", "-o", "addopts=", "-W", "default"),
)


def run(bed: Bed) -> None:
    """Notes how many tests passed, which failed and why, and which are not for a GPU."""
    place = "rehearsal" if bed.rehearsal else "cuda"
    missing = [name for name in ("pytest", "hypothesis") if find_spec(name) is None]
    if missing:
        bed.notes.fact(
            f"`{missing[0]}` is not installed", "so one test of each kernel runs without it"
        )
        run_subset(bed.notes, place, [])
        return
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        files = bed.sizes.vector_files or ("tests/kernels", "--ignore=tests/kernels/host")
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *_ALONE, f"--junitxml={report}", *files],
            env={
                **os.environ,
                "DSPARK_KERNEL_DEVICE": place,
                "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            },
            capture_output=True,
            text=True,
            check=False,
        )
        if not report.is_file():
            bed.notes.trouble(f"pytest ended with {done.returncode}\n{done.stdout}{done.stderr}")
            return
        note_results(bed.notes, ET.parse(report).getroot())


def note_results(notes: Notes, report: ET.Element) -> None:
    """Notes what a JUnit report says."""
    passed, left_out = 0, dict[str, Counter[str]]()
    for case in report.iter("testcase"):
        file, test = str(case.get("classname")).rpartition(".")[2], str(case.get("name"))
        name = f"{file}::{test}"
        failures = [*case.iter("failure"), *case.iter("error")]
        skipped = case.find("skipped")
        for failure in failures:
            notes.trouble(f"{name}\n{failure.text or failure.get('message')}")
        if skipped is not None:
            tests = left_out.setdefault(str(skipped.get("message")), Counter())
            tests[f"{file}::{test.partition('[')[0]}"] += 1
        passed += not failures and skipped is None
    notes.figure("tests passed", passed, "tests")
    for reason, tests in left_out.items():
        notes.figure(f"left out: {reason}", tests.total(), "tests")
        notes.fact(f"left out: {reason}", ", ".join(sorted(tests)))
    if not passed:
        notes.trouble("no test passed")


def run_subset(notes: Notes, place: str, before: list[str]) -> None:
    """Runs `subset.py` behind the command `before`, and notes what it says test by test."""
    done = subprocess.run(
        [*before, sys.executable, "-m", "benchmarks.gpu.subset"],
        env={**os.environ, "DSPARK_KERNEL_DEVICE": place},
        capture_output=True,
        text=True,
        check=False,
    )
    said = done.stdout.splitlines()
    notes.figure("tests passed", sum(line.startswith("ok ") for line in said), "tests")
    if done.returncode:
        notes.trouble(f"the tests ended with {done.returncode}\n{done.stdout}{done.stderr}")
