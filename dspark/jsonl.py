"""Decisions as lines of a file that several processes append to."""

from __future__ import annotations

import fcntl
import json
import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dspark.decision import Decision


class JsonlSink:
    """A callback for `dspark.on_decision` that appends one JSON object per decision to a file.

    A line is what `dspark route --json` prints, with `time` (UTC) before it. The file is opened
    for each line, so that a log may be moved away while the service runs, and locked while it is
    written: lines of several threads and processes never mix. Nothing that was written is changed.

    Raises OSError from the call that decides if the line cannot be written.
    """

    __slots__ = ("path",)

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)

    def __call__(self, decision: Decision) -> None:
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = json.dumps({"time": now, **decision.to_json()}).encode() + b"\n"
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        log = os.open(self.path, flags, 0o644)
        try:
            fcntl.flock(log, fcntl.LOCK_EX)
            # A disk that was full for a moment leaves half a line, which must not spoil this one.
            _write_all(log, line if _ends_a_line(log) else b"\n" + line)
        finally:
            os.close(log)


def _ends_a_line(log: int) -> bool:
    size = os.fstat(log).st_size
    return size == 0 or os.pread(log, 1, size - 1) == b"\n"


def _write_all(log: int, data: bytes) -> None:
    while data:
        data = data[os.write(log, data) :]
