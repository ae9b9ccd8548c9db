"""A rules file that may change while a service runs.

A version is taken whole or not at all: it must compile and pass the tests inside it. Until one
does, the last that did goes on deciding.
"""

from __future__ import annotations

import logging
import os
import threading
import time

from dspark.check import failing_tests
from dspark.compile import compile_file, rules_path
from dspark.compiled import Table
from dspark.errors import DsparkError, FailedTests

_log = logging.getLogger("dspark.reload")

_Stamp = tuple[int, int, int] | None
"""What tells one version of a file from another without reading it; None where there is no file."""


class ReloadingTable:
    """The newest good table of a rules file: ask `table` for it each time one is needed.

    `path` is what `dspark.compile_table` takes. The file is looked at when `table` is asked for,
    at most every `every` seconds, and read once two looks in a row found it unchanged: until then
    somebody may still be writing it. Any number of threads may ask; none of them waits. With
    `tested` false, a version whose own tests fail is taken too.

    Attributes:
        problem: why the newest version of the file is not the one in use; None if it is.

    Raises what `dspark.compile_table` raises, and `FailedTests`, if the first version is not good.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        every: float = 1.0,
        tested: bool = True,
    ) -> None:
        self._rules = rules_path(path)
        self._every = every
        self._tested = tested
        self._looking = threading.Lock()
        self._judged = self._settling = self._stamp()
        self._table = self._read()
        self._next = time.monotonic() + every
        self.problem: DsparkError | OSError | None = None

    @property
    def table(self) -> Table:
        if time.monotonic() >= self._next and self._looking.acquire(blocking=False):
            try:
                self._look()
            finally:
                self._next = time.monotonic() + self._every
                self._looking.release()
        return self._table

    def reload(self) -> bool:
        """Reads the file now, whoever may be writing it; whether the newest version is in use."""
        with self._looking:
            self._judged = self._settling = self._stamp()
            self._judge()
        return self.problem is None

    def _look(self) -> None:
        stamp = self._stamp()
        if stamp == self._judged:
            return
        settled, self._settling = stamp == self._settling, stamp
        if settled:
            self._judged = stamp
            self._judge()

    def _judge(self) -> None:
        file = self._rules.file
        try:
            table = self._read()
        except (DsparkError, OSError) as problem:
            self.problem = problem
            _log.warning("kept table %s: `%s` is refused: %s", self._table.version, file, problem)
            return
        if table.version != self._table.version:
            _log.info("took table %s from `%s`", table.version, file)
            self._table = table
        self.problem = None

    def _read(self) -> Table:
        table = compile_file(self._rules)
        failures = failing_tests(table) if self._tested else ()
        if failures:
            raise FailedTests(
                tuple(
                    f"{failed.case.place.file}:{failed.case.place.line}: a {failed.case.kind} of "
                    f"{failed.case.rule_id} wanted {failed.wanted} and got "
                    f"{failed.decision.summary()}"
                    for failed in failures
                )
            )
        return table

    def _stamp(self) -> _Stamp:
        try:
            status = os.stat(self._rules.file)  # noqa: PTH116 - as fast as a look can be
        except OSError:
            return None
        return status.st_mtime_ns, status.st_size, status.st_ino
