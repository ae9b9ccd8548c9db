"""What should be known of a config beside its decision, given the lane that takes it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cache

from dspark.contract import Finding
from dspark.misspelt import Names, misspelt_keys, read_names


def noticed(lane: str | None, config: Mapping[str, object]) -> tuple[Finding, ...]:
    """Warnings of keys that look misspelt; `lane` is None where the config is refused.

    What is read are the keys that facts come from, and those of the lane's contract if it has one.
    Raises nothing for what the config holds.
    """
    return tuple(misspelt_keys(config, *_read_by(lane)).values())


@cache
def _read_by(lane: str | None) -> tuple[Names, Collection[str]]:
    if lane is None:
        return read_names(), ()
    # Not above: a refusal needs no contract.
    from dspark.contract_reader import lane_file, load_contract

    # A table of somebody else's may have lanes that no contract is shipped for.
    if not lane_file(lane).is_file():
        return read_names(), ()
    contract = load_contract(lane)
    return read_names(contract), contract.known
