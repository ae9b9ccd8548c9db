"""Byte ranges of one file, wherever it lies."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Protocol, Self

from dspark.errors import Unreadable


class FileUnreadable(Unreadable):
    """One file is there and cannot be read; the other files of its checkpoint still can."""

    def __init__(self, file: str, reason: str) -> None:
        super().__init__("shard-unreadable", file=file, reason=reason)


class Reader(Protocol):
    """Ranges of one file; `read` returns exactly `length` bytes or raises `FileUnreadable`."""

    @property
    def name(self) -> str: ...
    @property
    def size(self) -> int: ...
    def read(self, start: int, length: int) -> bytes: ...


class LocalReader:
    """Ranges of a regular local file; `name` is what findings call it.

    Raises FileNotFoundError when nothing is there (a dangling link included) and
    `FileUnreadable` for a pipe, a device, a folder or a file this user may not read.
    """

    __slots__ = ("_fd", "name", "size")

    def __init__(self, path: Path, name: str) -> None:
        self.name = name
        try:
            # O_NONBLOCK: opening a pipe that nobody writes to would wait for ever.
            fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError):
            raise FileNotFoundError(name) from None
        except OSError as error:
            raise FileUnreadable(name, _system_reason(error)) from None
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            os.close(fd)
            raise FileUnreadable(name, "it is not a regular file")
        self._fd = fd
        self.size = status.st_size

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)

    def read(self, start: int, length: int) -> bytes:
        try:
            data = os.pread(self._fd, length, start)
        except OSError as error:
            raise FileUnreadable(self.name, _system_reason(error)) from None
        if len(data) != length:
            raise FileUnreadable(self.name, "it changed while it was read")
        return data


def _system_reason(error: OSError) -> str:
    return os.strerror(error.errno).lower() if error.errno else "the system gave no reason"
