"""What a test of a contract changes: keys of a config, and tensors of the weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

Config = dict[str, Any]


class Edits(NamedTuple):
    """What a test does to the tensors that the config asks for."""

    drop: tuple[str, ...] = ()
    add: Mapping[str, tuple[str, tuple[int, ...]]] = {}
    """Name -> dtype and shape."""
    rename: Mapping[str, str] = {}
    prefix: str = ""
    """Put in front of every name."""
    shape: Mapping[str, tuple[int, ...]] = {}
    dtype: Mapping[str, str] = {}
    all: str = ""
    """The dtype of every tensor."""
    values: Mapping[str, tuple[int, ...]] = {}
    """What a map of ids holds; zeros where it is not given."""


def copied(value: Any) -> Any:
    """The value, sharing nothing with it that an edit could change."""
    if isinstance(value, dict):
        return {key: copied(entry) for key, entry in value.items()}
    return [copied(entry) for entry in value] if isinstance(value, list) else value


def put(config: Config, path: list[str], value: object) -> None:
    """Sets what is at `path`, with the objects on the way made where they are missing."""
    for step in path[:-1]:
        inner = config.get(step)
        if not isinstance(inner, dict):
            inner = config[step] = {}
        config = inner
    config[path[-1]] = value


def remove(config: Config, path: list[str]) -> bool:
    """Removes what is at `path`; False if nothing is there."""
    inner: Any = config
    for step in path[:-1]:
        inner = inner.get(step)
        if not isinstance(inner, dict):
            return False
    return inner.pop(path[-1], inner) is not inner
