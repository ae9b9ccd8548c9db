"""Where text meets the terminal: the only module that prints.

Lines are made of plain strings and `(text, style)` pairs. On a terminal they are drawn with rich,
otherwise (a pipe, a file, NO_COLOR) they are the same words without styles.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TextIO, TypeVar

Segment = str | tuple[str, str]
Line = Sequence[Segment]
T = TypeVar("T")


def styled(stream: TextIO) -> bool:
    """Whether `stream` is a terminal that wants colour (https://no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


class OutputLost(Exception):
    """The output could not be written, for another reason than a reader that went away."""


def flush() -> None:
    """Hands what was printed to the system. Raises OutputLost, and BrokenPipeError."""
    if sys.stdout is not None:
        with _losses():
            sys.stdout.flush()


@contextmanager
def _losses() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputLost((error.strerror or "output error").lower()) from error


def write(lines: Iterable[Line], stream: TextIO | None = None) -> None:
    """Prints lines to `stream`, standard output by default; nowhere if that is closed.

    Raises OutputLost, and BrokenPipeError where the reader went away.
    """
    target = sys.stdout if stream is None else stream
    if target is not None:
        with _losses():
            _write(lines, target)


def emit(text: str) -> None:
    """Prints `text` as it stands and at once, for what grows while somebody reads it.

    Raises OutputLost, and BrokenPipeError where the reader went away.
    """
    if sys.stdout is not None:
        with _losses():
            sys.stdout.write(text)
            sys.stdout.flush()


def _write(lines: Iterable[Line], target: TextIO) -> None:
    if not styled(target):
        for line in lines:
            target.write("".join(s if isinstance(s, str) else s[0] for s in line) + "\n")
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(file=target, soft_wrap=True, highlight=False)
    for line in lines:
        text = Text()
        for segment in line:
            if isinstance(segment, str):
                text.append(segment)
            else:
                text.append(*segment)
        console.print(text)


def progress(items: Sequence[T], label: str) -> Iterator[T]:
    """The items, with a progress bar on standard error if that is a terminal and there are many."""
    if len(items) < 20 or not sys.stderr.isatty():
        yield from items
        return
    from rich.console import Console
    from rich.progress import track

    yield from track(items, description=label, console=Console(stderr=True), transient=True)


def tolerate_any_text() -> None:
    """Makes the standard streams print what they cannot encode as escapes, and never fail."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")
