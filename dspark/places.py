"""Where a config.json keeps a value: paths into it, and which of its keys nobody follows."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from functools import cache
from typing import NamedTuple

Path = tuple[str, ...]
"""Steps into config.json; a step of digits indexes a list."""


class Blocked(NamedTuple):
    """A value on the way that cannot be stepped into."""

    path: Path
    value: object
    wanted: str
    """`object` or `list`."""


@cache
def steps(dotted: str) -> Path:
    """The path that a dotted text stands for."""
    return tuple(dotted.split("."))


def look_up(config: Mapping[str, object], path: Path) -> object:
    """The value at `path`, None where it or anything on the way is absent or null, or `Blocked`."""
    value: object = config
    for depth, step in enumerate(path):
        if value is None:
            return None
        indexes = step.isdigit()
        # A dict is the usual case, and telling it by its type is several times faster.
        if not indexes and (type(value) is dict or isinstance(value, Mapping)):
            value = value.get(step)
        elif indexes and isinstance(value, list | tuple):
            value = value[int(step)] if int(step) < len(value) else None
        else:
            return Blocked(path[:depth], value, "list" if indexes else "object")
    return value


def unread(
    config: Mapping[str, object], read: Collection[Path], known: Collection[str]
) -> Iterator[str]:
    """The dotted paths of keys that are set, that no path in `read` follows and `known` lacks.

    A key with an object is stepped into when something inside it is read. `known` has dotted paths,
    and bare names that are known inside such an object too.
    """
    inner = {path[:depth] for path in read for depth in range(1, len(path))}
    yield from _unread(config, (), frozenset(read), inner, known)


def _unread(
    config: Mapping[str, object],
    prefix: Path,
    read: frozenset[Path],
    inner: Collection[Path],
    known: Collection[str],
) -> Iterator[str]:
    for name, value in config.items():
        path = (*prefix, name)
        if value is None or path in read or name in known or ".".join(path) in known:
            continue
        if path not in inner:
            yield ".".join(path)
        elif isinstance(value, Mapping):
            yield from _unread(value, path, read, inner, known)
