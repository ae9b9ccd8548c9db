"""A checkpoint's config, read once into the facts the rules ask about.

Facts come from the file's own keys, each remembered with the key it was read from. Nothing is
defaulted: a key that is missing or null leaves the fact ABSENT. Speculators files keep the draft's
layers in `transformer_layer_config` and the algorithm in `speculators_model_type`; they are read
from there, so that a rule sees the same facts whatever the packaging.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from dspark.errors import Unreadable
from dspark.facts import (
    ABSENT,
    ALGORITHM_OF_KEY,
    DRAFT_KEYS,
    IN_TARGET_KEYS,
    NESTED_KEYS,
    Cell,
)

Config = Mapping[str, object]
CONFIG_KEYS = frozenset(
    (
        "architectures",
        "block_size",
        "model_type",
        "projector_type",
        "speculators_config",
        "speculators_model_type",
        "transformer_layer_config",
        *ALGORITHM_OF_KEY,
        *DRAFT_KEYS,
        *IN_TARGET_KEYS,
        *NESTED_KEYS,
    )
)
"""The keys of a config.json that facts are read from; any other object has none of them."""
Origin = tuple[str, object]
"""The dotted key a fact was read from, and the raw value found there."""


class Observation(NamedTuple):
    """The facts of one checkpoint, each with its origin."""

    packaging: Cell
    architectures: tuple[str, ...]
    """Declared entries, in file order, without repeats; empty when none is declared."""
    algorithm: Cell
    model_type: Cell
    markov: Cell
    origins: Mapping[str, Origin]
    config: Config


def observe_config(config: Config) -> Observation:
    """The facts of a config.json that is already a mapping.

    Raises `Unreadable` (`architectures-bad-type`, `model-type-bad-type`, `nested-config-bad-type`,
    `speculators-bad-type`, `identity-keys-conflict`) for values no rule could be asked about.
    """
    origins: dict[str, Origin] = {}
    nested = _nested(config)
    packaging = _packaging(config, nested, origins)
    layers = _layers(config) if packaging == "speculators" else config
    prefix = "transformer_layer_config." if layers is not config else ""
    return Observation(
        packaging=packaging,
        architectures=_architectures(config, origins),
        algorithm=_algorithm(config, nested, origins),
        model_type=_model_type(layers, prefix, origins),
        markov=_markov(config, nested, packaging, origins),
        origins=origins,
        config=config,
    )


def observe_gguf() -> Observation:
    """The facts of a GGUF file: its packaging, and nothing else (it carries no config.json)."""
    return Observation(
        "gguf", (), ABSENT, ABSENT, ABSENT, {"packaging": ("GGUF magic", "GGUF")}, {}
    )


def _nested(config: Config) -> list[tuple[str, Config]]:
    found: list[tuple[str, Config]] = []
    for key in NESTED_KEYS:
        value = config.get(key)
        if value is None:
            continue
        if not isinstance(value, Mapping):
            raise Unreadable("nested-config-bad-type", key=key, found=kind(value))
        if value:
            found.append((key, value))
    return found


def _packaging(
    config: Config, nested: list[tuple[str, Config]], origins: dict[str, Origin]
) -> Cell:
    for key in ("speculators_model_type", "speculators_config"):
        if config.get(key) is not None:
            origins["packaging"] = (key, config[key])
            return "speculators"
    if nested:
        origins["packaging"] = nested[0]
        return "nested"
    bare = next((key for key in DRAFT_KEYS if config.get(key) is not None), None)
    if bare is not None:
        origins["packaging"] = (bare, config[bare])
        return "flat"
    for key in IN_TARGET_KEYS:
        if config.get(key) is not None:
            origins["packaging"] = (key, config[key])
            return "in-target"
    if config.get("block_size") is not None:
        origins["packaging"] = ("block_size", config["block_size"])
    return "flat"


def _layers(config: Config) -> Config:
    layers = config.get("transformer_layer_config")
    if layers is None:
        return {}
    if not isinstance(layers, Mapping):
        raise Unreadable("speculators-bad-type", key="transformer_layer_config", found=kind(layers))
    return layers


def _architectures(config: Config, origins: dict[str, Origin]) -> tuple[str, ...]:
    declared = config.get("architectures")
    if declared is None:
        return ()
    if not isinstance(declared, list | tuple):
        raise Unreadable("architectures-bad-type", found=kind(declared))
    for entry in declared:
        if not isinstance(entry, str):
            raise Unreadable("architectures-bad-type", found=f"a list that holds {kind(entry)}")
    if declared:
        origins["architecture"] = ("architectures", declared)
    if len(declared) == 1:
        return (declared[0],)
    return tuple(dict.fromkeys(declared))


def _algorithm(
    config: Config, nested: list[tuple[str, Config]], origins: dict[str, Origin]
) -> Cell:
    found: Cell = ABSENT
    for key, cell, value in _named_algorithms(config, nested):
        if found is not ABSENT and found != cell:
            raise _conflict(origins["algorithm"], (key, value))
        if found is ABSENT:
            found = cell
            origins["algorithm"] = (key, value)
    return found


def _named_algorithms(
    config: Config, nested: list[tuple[str, Config]]
) -> Iterator[tuple[str, str, object]]:
    """(key, algorithm, raw value) of every key that names an algorithm, in a fixed order."""
    named = config.get("speculators_model_type")
    if named is not None:
        if not isinstance(named, str):
            key = "speculators_model_type"
            raise Unreadable("speculators-bad-type", key=key, found=kind(named))
        yield "speculators_model_type", named, named
    about = config.get("speculators_config")
    if about is not None and not isinstance(about, Mapping):
        raise Unreadable("speculators-bad-type", key="speculators_config", found=kind(about))
    # Readers dispatch on the type; the algorithm may only agree with it.
    if named is not None and about is not None and about.get("algorithm") is not None:
        yield "speculators_config.algorithm", str(about["algorithm"]), about["algorithm"]
    for prefix, place in (("", config), *((f"{key}.", value) for key, value in nested)):
        projector = place.get("projector_type")
        if projector is not None:
            if not isinstance(projector, str):
                key = f"{prefix}projector_type"
                raise Unreadable("model-type-bad-type", key=key, found=kind(projector))
            yield f"{prefix}projector_type", projector, projector
        for key, algorithm in ALGORITHM_OF_KEY.items():
            # 0, false and null say that the file does not have what the key is about.
            if place.get(key):
                yield prefix + key, algorithm, place[key]


def _model_type(layers: Config, prefix: str, origins: dict[str, Origin]) -> Cell:
    value = layers.get("model_type")
    if value is None:
        return ABSENT
    if not isinstance(value, str):
        raise Unreadable("model-type-bad-type", key=f"{prefix}model_type", found=kind(value))
    origins["model_type"] = (f"{prefix}model_type", value)
    return value


def _markov(
    config: Config, nested: list[tuple[str, Config]], packaging: Cell, origins: dict[str, Origin]
) -> Cell:
    found: Cell = ABSENT
    # Under a separate draft's keys the prefixed one is another exporter's mistake, not an alias.
    own = "dspark_markov_rank" if packaging == "in-target" else "markov_rank"
    places: list[tuple[str, object]] = [(own, config.get(own))]
    places += [(f"{key}.markov_rank", value.get("markov_rank")) for key, value in nested]
    for key, rank in places:
        if rank is None:
            continue
        if type(rank) is not int or rank < 0:
            cell = "invalid"
        else:
            cell = "positive" if rank else "zero"
        if found is not ABSENT and found != cell:
            raise _conflict(origins["markov"], (key, rank))
        if found is ABSENT:
            found = cell
            origins["markov"] = (key, rank)
    return found


def _conflict(first: Origin, second: Origin) -> Unreadable:
    return Unreadable(
        "identity-keys-conflict",
        key=first[0],
        value=first[1],
        other_key=second[0],
        other_value=second[1],
    )


def kind(value: object) -> str:
    """What a JSON value is, in the words of the format and not of Python."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return "a number"
    if isinstance(value, str):
        return "a string"
    if isinstance(value, list | tuple):
        return "a list"
    return "an object"
