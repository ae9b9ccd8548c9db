"""Breaks the kernels line by line and sees a test notice each time: `scripts/mutants [FILE ...]`.

FILE is a kernel's source or header; by default it is all of them. The test that noticed a mutant is
kept in killers.json, and alone runs for it the next time; only where it no longer notices do the
others. `--write` records who notices now.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path

from dspark.kernels.host.build import build
from tests.kernels.mutants import EQUIVALENT, KILLERS, MUTANTS
from tests.support.kernel_mutation import Mutant, Verdict, about, run_tests, write

PATIENCE_S = 300.0
"""How long the tests of one mutant may take."""

_PRELOADED = ["pytest", "numpy", "hypothesis", "dspark.kernels.host_driver"]
"""What takes long to import; nothing of it reads the kernels before it is asked to."""

Killers = dict[str, dict[str, str]]


@dataclass(frozen=True, slots=True)
class Job:
    """Tests to run on a broken kernel, or on none; `recorded` says that it is just its killer."""

    mutant: Mutant | None
    tests: tuple[str, ...]
    recorded: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a job; `log` is what was printed, where that may be of interest."""

    job: Job
    verdict: Verdict
    log: str


@dataclass(slots=True)
class _Running:
    job: Job
    folder: Path
    log: Path
    process: ForkServerProcess
    answer: Connection
    until: float

    def end(self) -> Outcome:
        late = self.process.exitcode is None
        if late:
            self.process.kill()
        self.process.join()
        try:
            verdict: Verdict = self.answer.recv()
        except EOFError:
            code = self.process.exitcode
            fault = f"it takes more than {PATIENCE_S:.0f} s" if late else f"it ended with {code}"
            verdict = Verdict(None, fault)
        log = self.log.read_text("utf-8") if self.log.is_file() else ""
        if self.job.mutant is not None:
            shutil.rmtree(self.folder)
        return Outcome(self.job, verdict, log)


@dataclass(slots=True)
class Pool:
    """Runs jobs in `scratch`, each in a process that finds done what takes long to import."""

    scratch: Path
    workers: int
    _started: int = 0
    _context: ForkServerContext = field(
        default_factory=lambda: multiprocessing.get_context("forkserver")
    )

    def __post_init__(self) -> None:
        self._context.set_forkserver_preload(_PRELOADED)
        write(self._unbroken, None, None)
        # Compiles what all libraries share, before two processes do so at once.
        build(self._unbroken / "kernels" / "best.cu", self._unbroken / "compiled")

    @property
    def _unbroken(self) -> Path:
        return self.scratch / "unbroken"

    def run(self, jobs: deque[Job]) -> Iterator[Outcome]:
        """What becomes of each job, in the order they end; `jobs` may grow meanwhile."""
        running: list[_Running] = []
        while jobs or running:
            while jobs and len(running) < self.workers:
                running.append(self._start(jobs.popleft()))
            wait([each.process.sentinel for each in running], timeout=1)
            for one in list(running):
                if one.process.exitcode is not None or time.monotonic() > one.until:
                    running.remove(one)
                    yield one.end()

    def _start(self, job: Job) -> _Running:
        self._started += 1
        folder = self._unbroken
        if job.mutant is not None:
            folder = self.scratch / str(self._started)
            write(folder, job.mutant, self._unbroken)
        log = folder / f"{self._started}.log"
        answer, sender = self._context.Pipe(duplex=False)
        process = self._context.Process(target=run_tests, args=(folder, job.tests, log, sender))
        process.start()
        sender.close()
        return _Running(job, folder, log, process, answer, time.monotonic() + PATIENCE_S)


def examine(pool: Pool, mutants: Sequence[Mutant], killers: Killers) -> Iterator[Outcome]:
    """What becomes of unbroken kernels, and then of each of `mutants`, its own killer first."""
    tests = dict.fromkeys(test for mutant in mutants for test in about(mutant.file))
    yield from pool.run(deque(Job(None, (test,)) for test in tests))
    jobs: deque[Job] = deque()
    for mutant in mutants:
        killer = killers.get(mutant.file, {}).get(str(mutant))
        jobs.append(Job(mutant, (killer,) if killer else about(mutant.file), killer is not None))
    for outcome in pool.run(jobs):
        if outcome.job.recorded and not outcome.verdict.failed:
            jobs.append(Job(outcome.job.mutant, about(outcome.job.mutant.file)))
        else:
            yield outcome


def problem(outcome: Outcome) -> str:
    """What is wrong with `outcome`, or nothing."""
    mutant, verdict = outcome.job.mutant, outcome.verdict
    if mutant is None:
        return verdict.fault or (f"{verdict.failed} fails unbroken" if verdict.failed else "")
    if verdict.fault:
        return verdict.fault
    if mutant in EQUIVALENT:
        return f"noticed, and not equivalent: {EQUIVALENT[mutant]}" if verdict.failed else ""
    return "" if verdict.failed else "nobody notices"


def recorded() -> Killers:
    """Who noticed what the last time."""
    found: Killers = json.loads(KILLERS.read_text("utf-8"))
    return found


def updated(killers: Killers, found: Mapping[Mutant, str]) -> Killers:
    """`killers` with what was found, for the mutants that there are and in their order."""
    new: Killers = {}
    for mutant in MUTANTS:
        killer = found.get(mutant) or killers.get(mutant.file, {}).get(str(mutant))
        if killer:
            new.setdefault(mutant.file, {})[str(mutant)] = killer
    return new


def main(arguments: Sequence[str]) -> int:
    """Prints what nobody notices; returns 1 if there is any of it, 2 for a name of no file."""
    if {"-h", "--help"} & set(arguments):
        print(__doc__)
        return 0
    files = [each for each in arguments if each != "--write"]
    known = {mutant.file for mutant in MUTANTS}
    if not known.issuperset(files):
        print(f"there are mutants of {', '.join(sorted(known))}, and of no other file")
        return 2
    chosen = [each for each in (*MUTANTS, *EQUIVALENT) if not files or each.file in files]
    killers = recorded()
    began, problems, found = time.monotonic(), 0, {}
    with tempfile.TemporaryDirectory() as scratch:
        for outcome in examine(Pool(Path(scratch), len(os.sched_getaffinity(0))), chosen, killers):
            mutant = outcome.job.mutant
            if problem(outcome):
                problems += 1
                where = f"{mutant.file}: {mutant}" if mutant else outcome.job.tests[0]
                print(f"{outcome.log}\n{where}\n  {problem(outcome)}", flush=True)
            elif mutant is not None and outcome.verdict.failed:
                found[mutant] = outcome.verdict.failed
    if "--write" in arguments:
        # Read anew: another run may have written meanwhile.
        text = json.dumps(updated(recorded(), found), indent=1, ensure_ascii=False)
        KILLERS.write_text(text + "\n", "utf-8")
    moved = sum(killers.get(each.file, {}).get(str(each)) != test for each, test in found.items())
    print(
        f"{len(found)} of {len(chosen)} broken kernels noticed, {moved} of them not by the test in"
        f" {KILLERS.name}; {problems} problems; {time.monotonic() - began:.0f} s"
    )
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
