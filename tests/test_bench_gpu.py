"""The conduct of `scripts/gpu`: budgets, failures, what is written down, and how it is started."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from benchmarks.gpu import __main__ as command_line
from benchmarks.gpu.bed import Bed, need
from benchmarks.gpu.conduct import STEPS, Outcome, Step, conduct
from benchmarks.gpu.notes import Figure, Found, Notes, Skipped, read
from benchmarks.gpu.report import REHEARSAL, lines, to_json
from dspark.kernels.errors import AllocationError, ToolkitMissing

STEP = Step("made up", "a step of a test", 30, "nowhere")


def python(step: Step, folder: Path, code: str) -> list[str]:
    """A step that runs `code` with its notes at hand."""
    notes = "from pathlib import Path; from benchmarks.gpu.notes import Notes; "
    made = f"notes = Notes(Path({str(folder)!r}), {step.name!r})"
    return [sys.executable, "-c", f"{notes}{made}\n{code}"]


def outcome(code: str, step: Step = STEP) -> Outcome:
    (found,) = conduct([step], lambda step, folder: python(step, folder, code))
    return found


def test_a_step_that_comes_to_its_end() -> None:
    found = outcome("notes.figure('speed', 2.5, 'GB/s'); notes.fact('card', 'none'); notes.done()")

    assert ("ok", []) == (found.status, found.texts)
    assert [Figure("speed", 2.5, "GB/s")] == found.found.figures
    assert {"card": "none"} == found.found.facts


def test_what_was_measured_before_a_crash_is_kept() -> None:
    found = outcome("notes.figure('speed', 2.5, 'GB/s'); print('so far'); 1 / 0")

    assert "failed" == found.status
    (text,) = found.texts
    assert text.startswith("it ended with exit code 1\nso far\nTraceback")
    assert text.endswith("ZeroDivisionError: division by zero")
    assert [2.5] == [each.value for each in found.found.figures]


def test_a_step_is_ended_at_its_budget_with_all_it_started(tmp_path: Path) -> None:
    alive = tmp_path / "alive"
    grandchild = f"import time; time.sleep(4); open({str(alive)!r}, 'w')"
    code = (
        "import subprocess, sys, time; notes.figure('speed', 1, 'GB/s')\n"
        f"subprocess.Popen([sys.executable, '-c', {grandchild!r}]); print('on', flush=True)\n"
        "time.sleep(60); notes.done()"
    )
    started = time.monotonic()

    found = outcome(code, Step("made up", "", 2, ""))

    assert time.monotonic() - started < 55
    assert "failed" == found.status
    assert ["it was ended after its budget of 2 s\non"] == found.texts
    assert [1.0] == [each.value for each in found.found.figures]
    time.sleep(4.5)
    assert not alive.exists()


@pytest.mark.parametrize(
    ("code", "status", "text"),
    [
        ("print('hm')", "failed", "it ended without a word\nhm"),
        ("import os; os.kill(os.getpid(), 9)", "failed", "it ended with exit code -9"),
        ("notes.skipped('no torch')", "skipped", "no torch"),
        ("notes.trouble('a kernel is wrong'); notes.done()", "failed", "a kernel is wrong"),
        ("notes.trouble('one'); notes.skipped('the rest')", "failed", "one"),
    ],
)
def test_other_ends(code: str, status: str, text: str) -> None:
    found = outcome(code)

    assert (status, [text]) == (found.status, found.texts)


def test_the_next_step_runs_whatever_became_of_the_one_before() -> None:
    def command(step: Step, folder: Path) -> Sequence[str]:
        return python(step, folder, "1 / 0" if step.name == "first" else "notes.done()")

    steps = [Step(name, "", 30, "") for name in ("first", "second")]

    assert ["failed", "ok"] == [found.status for found in conduct(steps, command)]


def test_without_a_gpu_only_what_needs_none_is_run() -> None:
    steps = [STEP, Step("free", "", 30, "", needs_gpu=False)]

    without, free = conduct(
        steps,
        lambda step, folder: python(step, folder, "notes.done()"),
        gpu_trouble="the NVIDIA driver sees no GPU",
    )

    assert ("skipped", ["the NVIDIA driver sees no GPU"]) == (without.status, without.texts)
    assert "ok" == free.status


def test_half_a_line_is_no_note(tmp_path: Path) -> None:
    Notes(tmp_path, "one").figure("speed", 1.0, "GB/s")
    with (tmp_path / "one.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"figure": ["cop')

    assert Found(figures=[Figure("speed", 1.0, "GB/s")]) == read(tmp_path, "one")


def test_a_step_sees_the_figures_of_those_before(tmp_path: Path) -> None:
    Notes(tmp_path, "one").figure("speed", 7.0, "GB/s")
    later = Notes(tmp_path, "two")

    assert 7.0 == later.earlier("one", "speed")
    assert None is later.earlier("one", "heat") is later.earlier("three", "speed")


def test_a_rehearsal_keeps_no_figure(tmp_path: Path) -> None:
    Notes(tmp_path, "one", rehearsal=True).figure("speed", 7.0, "GB/s")

    assert [Figure("speed", None, "GB/s")] == read(tmp_path, "one").figures


def test_a_package_that_is_missing_is_named() -> None:
    need("json")
    with pytest.raises(Skipped, match="the package `no_such_package` is not installed"):
        need("json", "no_such_package")


def test_the_table() -> None:
    figures = [Figure("speed", 4012.345, "GB/s"), Figure("share", 0.93217, ""), Figure("a", 3, "b")]
    found = Found(figures=[*figures, Figure("heat", None, "K")], facts={"card 0": "H200, sm_90"})

    shown = list(lines(Outcome(STEP, "failed", 1.23, ["one reason\nin two lines"], found)))

    assert [
        "failed  made up    a step of a test (1.2 s)",
        f"          {'card 0':<44} H200, sm_90",
        f"          {'speed':<44} {'4012.3':>12} GB/s",
        f"          {'share':<44} {'0.9322':>12} ",
        f"          {'a':<44} {'3':>12} b",
        f"          {'heat':<44} {'-':>12} K",
        "    !     one reason",
        "          | in two lines",
    ] == shown


def test_the_json() -> None:
    doctor = Step("doctor", "", 30, "")
    facts = {"card 0": "H200, sm_90", "driver": "580.1"}
    outcomes = [
        Outcome(doctor, "ok", 1.0, [], Found(facts=facts)),
        Outcome(STEP, "failed", 2.0, ["why"], Found(figures=[Figure("speed", 1.5, "GB/s")])),
    ]

    made = json.loads(json.dumps(to_json(outcomes, rehearsal=False)))

    assert facts == made["machine"]
    assert None is made["rehearsal"]
    assert made["date"].endswith("+00:00")
    assert ["ok", "failed"] == [step["status"] for step in made["steps"]]
    assert [{"name": "speed", "value": 1.5, "unit": "GB/s"}] == made["steps"][1]["figures"]
    assert ["why"] == made["steps"][1]["texts"]
    assert REHEARSAL == to_json(outcomes, rehearsal=True)["rehearsal"]


def test_all_steps_fit_into_five_minutes_and_are_there() -> None:
    assert sum(step.budget for step in STEPS) < 300
    for step in STEPS:
        assert (Path(command_line.__file__).parent / f"{step.module}.py").is_file()


def test_a_machine_without_a_gpu_is_said_to_be_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DSPARK_LIBCUDA", "libnowhere.so")
    out = tmp_path / "folder" / "gpu.json"

    code = command_line.main(["--out", str(out), "--only", "launches", "tiny"])

    assert 3 == code
    reason = "there is no NVIDIA driver (`libnowhere.so` is not installed)"
    assert f"    -     {reason}" in capsys.readouterr().out.splitlines()
    steps = json.loads(out.read_text(encoding="utf-8"))["steps"]
    assert [("launches", "skipped", [reason])] * 1 == [
        (step["step"], step["status"], step["texts"]) for step in steps[:1]
    ]
    assert [[], []] == [step["figures"] for step in steps]


@pytest.mark.parametrize(("code", "expected"), [("notes.done()", 0), ("1 / 0", 1)])
def test_a_failed_step_is_the_commands_failure(code: str, expected: int, tmp_path: Path) -> None:
    arguments = ["--rehearse", "--out", str(tmp_path / "gpu.json"), "--only", "launches"]

    assert expected == command_line.main(arguments, lambda step, folder: python(step, folder, code))


def test_a_step_that_cannot_be_done_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(bed: Bed) -> None:
        bed.notes.figure("launches", 1, "launches")
        raise Skipped("nothing to launch")

    monkeypatch.setattr("benchmarks.gpu.launch_cost.run", run)

    assert 0 == command_line.run_step("launches", tmp_path, rehearsal=True)
    assert Found(
        figures=[Figure("launches", None, "launches")], skipped="nothing to launch"
    ) == read(tmp_path, "launches")


@pytest.mark.parametrize("lack", [ToolkitMissing("no NVRTC"), AllocationError("no room")])
def test_what_a_machine_lacks_is_said_without_a_traceback(
    lack: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(_: Bed) -> None:
        raise lack

    monkeypatch.setattr("benchmarks.gpu.launch_cost.run", run)

    assert 0 == command_line.run_step("launches", tmp_path, rehearsal=True)
    assert Found(troubles=[str(lack)], done=True) == read(tmp_path, "launches")


def test_the_script_runs_where_nothing_is_installed(repository: Path, tmp_path: Path) -> None:
    """By the Python that this one was made from, to which NumPy alone is lent."""
    home, site = Path(np.__file__).parents[1], tmp_path / "site"
    site.mkdir()
    for folder in home.glob("numpy*"):
        (site / folder.name).symlink_to(folder)
    base = Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}"
    environment = {
        **os.environ,
        "PYTHON": str(base),
        "PYTHONPATH": str(site),
        "PYTHONNOUSERSITE": "1",
    }
    environment.pop("VIRTUAL_ENV", None)
    out = tmp_path / "gpu.json"

    done = subprocess.run(
        ["scripts/gpu", "--rehearse", "--out", str(out), "--only", "launches"],
        cwd=repository,
        env={**os.environ, "PYTHON": str(base), "PYTHONPATH": str(site), "PYTHONNOUSERSITE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert 0 == done.returncode, done.stdout + done.stderr
    assert REHEARSAL == done.stdout.splitlines()[0]
    (launches,) = json.loads(out.read_text(encoding="utf-8"))["steps"]
    assert ("ok", 3) == (launches["status"], len(launches["figures"]))
    assert {None} == {figure["value"] for figure in launches["figures"]}
