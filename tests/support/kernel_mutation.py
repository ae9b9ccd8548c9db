"""One broken kernel at a time: written to a folder, and whether a test notices."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from dspark.kernels.errors import CompileError
from dspark.kernels.signatures import FOLDER

TESTS = {
    "norm.cu": ("test_norm.py",),
    "rows.cu": ("test_rows.py",),
    "rope.cu": ("test_rope.py",),
    "round.cu": ("test_round.py", "test_accept_sampled.py"),
    "plan.cu": ("test_plan.py",),
    "sampling.cu": ("test_sampling.py",),
    "confidence.cu": ("test_confidence.py",),
    "markov.cu": ("test_markov.py",),
    "best.cu": ("test_best.py",),
    "gemm.cu": ("test_gemm.py",),
    "gemm_fp8.cu": ("test_gemm.py",),
    "combine.cu": ("test_combine.py", "test_attention.py"),
    "attention.cu": ("test_attention.py", "test_attention_geometry.py"),
}
"""Which tests are about which source; a header's are those of every source that includes it."""

TEXTS = {
    file.name: file.read_text("utf-8")
    for pattern in ("*.cu", "*.cuh")
    for file in FOLDER.glob(pattern)
    if not file.name.startswith("device")
}
"""Sources and headers that may be broken."""

_INCLUDE = re.compile(r'^#include "([\w.]+)"\n', re.M)
_OTHER_SIZES = re.compile(r"^(?:ATTEND|COMBINE_SPLITS)\((?:64|96|128)\)\n", re.M)


@dataclass(frozen=True, slots=True)
class Mutant:
    """`line` of `file`, where it comes first, is `broken` instead."""

    file: str
    line: str
    broken: str

    def __str__(self) -> str:
        return f"{self.line} -> {self.broken}"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The first test that failed; `fault` says why that, or that none did, proves nothing."""

    failed: str | None
    fault: str = ""


def about(file: str) -> tuple[str, ...]:
    """Paths of the tests that are about `file`."""
    found = [test for source, tests in TESTS.items() if file in _parts(source) for test in tests]
    return tuple(f"tests/kernels/{test}" for test in dict.fromkeys(found))


def write(folder: Path, mutant: Mutant | None, unbroken: Path | None) -> None:
    """Puts all kernels into `folder`, one of them broken, beside what is compiled of `unbroken`.

    What is compiled is kept by its source, so headers go into that. One size of attention is enough
    to show what is broken, and compiles four times as fast.
    """
    texts = dict(TEXTS)
    if mutant is not None:
        # INVARIANT: test_mutants.py holds every mutant against its file.
        assert mutant.line in texts[mutant.file], mutant
        texts[mutant.file] = texts[mutant.file].replace(mutant.line, mutant.broken, 1)
    kernels, compiled = folder / "kernels", folder / "compiled"
    kernels.mkdir(parents=True)
    compiled.mkdir()
    for source in TESTS:
        (kernels / source).write_text(_OTHER_SIZES.sub("", _flat(texts, source, set())), "utf-8")
    for kept in (unbroken / "compiled").iterdir() if unbroken else ():
        (compiled / kept.name).symlink_to(kept)


def run_tests(folder: Path, tests: Sequence[str], log: Path, answer: Connection) -> None:
    """Sends what `tests`, up to the first that fails, make of the kernels in `folder`.

    For a process of its own that has imported nothing that looks at kernels. What is printed goes
    to `log`.
    """
    os.environ["DSPARK_MUTANT"] = str(folder / "kernels")
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    with log.open("w", encoding="utf-8") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    notes = _Notes()
    options = ["-x", "-q", "-p", "no:cacheprovider", "-m", "not slow"]
    code = pytest.main([*options, *tests], plugins=[notes])
    if not notes.fault and code != (1 if notes.failed else 0):
        notes.fault = f"pytest ended with {int(code)}"
    answer.send(Verdict(notes.failed, notes.fault))


class _Notes:
    """A plugin that notes which test failed, and sees that it is not for another reason."""

    failed: str | None = None
    fault = ""

    def pytest_exception_interact(self, call: pytest.CallInfo[None]) -> None:
        if call.excinfo is not None and call.excinfo.errisinstance(CompileError):
            self.fault = "it does not compile"

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and report.when == "call":
            self.failed = report.nodeid


def _parts(file: str) -> Iterator[str]:
    yield file
    for included in _INCLUDE.findall(TEXTS[file]):
        if included in TEXTS:
            yield from _parts(included)


def _flat(texts: Mapping[str, str], file: str, done: set[str]) -> str:
    """`file` with the text of its headers in place of their names."""

    def text_of(match: re.Match[str]) -> str:
        if match[1] not in texts:
            return match[0]
        if match[1] in done:
            return ""
        done.add(match[1])
        return _flat(texts, match[1], done)

    return _INCLUDE.sub(text_of, texts[file].replace("#pragma once\n", ""))
