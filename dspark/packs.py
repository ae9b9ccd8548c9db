"""Rule packs: tables that other packages bring, found by the entry point group `dspark.rules`.

An entry point names a package, and the table is the `drafts.yaml` in it. Nothing of that package is
imported: a table is data, and asking for it must not run code.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from dspark.errors import PackError
from dspark.spelling import did_you_mean

GROUP = "dspark.rules"
TABLE = "drafts.yaml"

_NAME = re.compile(r"[a-z][a-z0-9]*([.-][a-z0-9]+)*")  # it stands before each of the pack's IDs


class Pack(NamedTuple):
    """An installed rule pack."""

    name: str
    package: str
    """Name and version of the distribution that brings it."""
    file: Path

    @property
    def origin(self) -> str:
        return f"the rule pack `{self.name}` of the package `{self.package}`"


def find_pack(name: str) -> Pack:
    """The installed pack of this name. Raises `PackError`, which says which packs there are."""
    found = list(entry_points(group=GROUP))
    named = [entry for entry in found if entry.name == name]
    if not named:
        raise PackError(_unknown(name, {entry.name for entry in found}))
    if len(named) > 1:
        packages = " and ".join(f"`{package}`" for package in sorted(map(_package, named)))
        raise PackError(f"the packages {packages} both bring a rule pack `{name}`; uninstall one")
    entry = named[0]
    pack = Pack(name, _package(entry), Path())
    if not _NAME.fullmatch(name):
        raise PackError(f"{pack.origin} has a bad name; use lower-case words joined by hyphens")
    places = list(_places(entry.value))
    file = next((place / TABLE for place in places if (place / TABLE).is_file()), None)
    if file is None:
        missing = f"file `{places[0] / TABLE}`" if places else f"package `{entry.value}`"
        raise PackError(f"{pack.origin} is broken: there is no {missing}")
    return pack._replace(file=file)


def _unknown(name: str, known: Iterable[str]) -> str:
    listed = ", ".join(f"`{one}`" for one in sorted(known))
    hint = did_you_mean(name, known)
    there = f"installed rule packs: {listed}" if listed else "no rule pack is installed"
    return f"no installed package brings a rule pack `{name}`; {f'{hint} ' if hint else ''}{there}"


def _package(entry: EntryPoint) -> str:
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist is not None else "(unnamed)"


def _places(package: str) -> Iterable[Path]:
    """The folders that an importable package may have, found without importing any part of it."""
    top, *inner = package.split(".")
    try:
        spec = find_spec(top) if top else None
    except ValueError:  # so it says of a module without a finder, such as `__main__`
        spec = None
    for folder in (spec.submodule_search_locations if spec is not None else None) or ():
        yield Path(folder, *inner)
