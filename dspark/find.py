"""Checkpoints in a directory tree: every folder with a config.json."""

from __future__ import annotations

import os
from collections.abc import Iterator


def find_checkpoints(top: str) -> Iterator[str]:
    """Every folder at or under `top` that holds a config.json or cannot be listed, sorted.

    A folder that cannot be listed is an answer too: leaving it out would pass what nobody read.

    Links to folders are not followed, so that a loop cannot trap the walk; a checkpoint folder
    made of links to files, as in the hub's cache, is found.
    """
    closed: list[str] = []
    for folder, names, files in os.walk(top, onerror=lambda error: closed.append(error.filename)):
        yield from closed
        closed.clear()
        names.sort()
        if "config.json" in files:
            yield folder
    yield from closed
