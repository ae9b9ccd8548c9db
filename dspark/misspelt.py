"""Keys of a config that nothing reads, and that miss a key which is read and not set by a slip.

A real config carries many keys that are nobody's mistake, so this can only be a note: what is
close is taken narrowly, and a key is never suspected of being one that the config has anyway.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache
from typing import Any

from dspark.contract import Contract, Finding
from dspark.facts import ALGORITHM_OF_KEY, NESTED_KEYS
from dspark.findings import finding
from dspark.observe import CONFIG_KEYS
from dspark.places import Path, steps
from dspark.spelling import slip

FACT_PATHS: frozenset[Path] = frozenset(
    (
        *((key,) for key in CONFIG_KEYS),
        ("speculators_config", "algorithm"),
        ("transformer_layer_config", "model_type"),
        *((within, key) for within in NESTED_KEYS for key in ("markov_rank", "projector_type")),
        *((within, key) for within in NESTED_KEYS for key in ALGORITHM_OF_KEY),
    )
)
"""Where `dspark.observe` looks in a config."""

Names = Mapping[Path, frozenset[str]]
"""The names that are read in an object of the config, by the path of the object."""


def misspelt_keys(
    config: Mapping[str, object], names: Names, known: Collection[str] = ()
) -> dict[str, Finding]:
    """The dotted path of each key of `config` that looks misspelt -> a warning that names both.

    `names` are those that are read, `known` those that are right as they are although nothing reads
    them, dotted or bare. Raises nothing for what the config holds.
    """
    return {
        key: finding("misspelt-key", key=key, meant=meant)
        for key, meant in _slips(config, (), names, known)
    }


def read_names(contract: Contract | None = None) -> Names:
    """The names that decide: of facts, and of what a contract takes or refuses."""
    paths = set(FACT_PATHS)
    if contract is not None:
        paths.update(place.path for key in contract.keys.values() for place in key.places)
        # Such as the token ids that a mask token is compared with: right, and nobody's to miss.
        checked = {path for check in contract.checks for path in check.paths} - contract.known
        paths.update(map(steps, checked))
    return _by_object(frozenset(paths))


@lru_cache(maxsize=64)
def _by_object(paths: frozenset[Path]) -> Names:
    # Kept: the proof of a contract asks thousands of times, of contracts that read the same.
    found: dict[Path, set[str]] = {}
    for path in paths:
        for depth, name in enumerate(path):
            found.setdefault(path[:depth], set()).add(name)
    return {path: frozenset(names) for path, names in found.items()}


def _slips(
    config: Mapping[Any, object], prefix: Path, names: Names, known: Collection[str]
) -> Iterator[tuple[str, str]]:
    here = names[prefix]
    for name, value in config.items():
        path = (*prefix, name)
        if value is None:
            continue
        if name in here:
            if path in names and isinstance(value, Mapping):
                yield from _slips(value, path, names, known)
            continue
        # A mapping that is no file may have any key.
        meant = slip(name, here) if isinstance(name, str) else None
        if meant is None or config.get(meant) is not None:
            continue
        dotted = ".".join(path)
        if name not in known and dotted not in known:
            yield dotted, ".".join((*prefix, meant))
