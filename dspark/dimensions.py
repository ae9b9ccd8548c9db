"""Tensor dimensions as sums of products of config keys, and the conditions a tensor depends on."""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import prod

from dspark.contract import Dim, Value

_TERM = re.compile(r"\s*([+-])\s*")
_FACTOR = re.compile(r"\s*\*\s*")
_NAME = re.compile(r"[a-z][a-z0-9_]*")
_COUNT = re.compile(r"count\(([a-z][a-z0-9_]*)\)")
_NUMBER = re.compile(r"0|[1-9][0-9]{0,8}")


def parse_dim(text: str) -> Dim | None:
    """The dimension that `text` says, or None if it is not one.

    A sum or difference of products: `3 * markov_rank`, `block_size - 1`,
    `count(target_layer_ids) * target_hidden_size`.
    """
    pieces = _TERM.split("+" + text.strip())
    terms = []
    for sign, product in zip(pieces[1::2], pieces[2::2], strict=True):
        factors = tuple(_FACTOR.split(product))
        if not all(_is_factor(factor) for factor in factors):
            return None
        terms.append(factors if sign == "+" else ("-1", *factors))
    return Dim(text.strip(), tuple(terms))


def _is_factor(text: str) -> bool:
    return any(pattern.fullmatch(text) for pattern in (_NAME, _COUNT, _NUMBER))


def keys_of(dim: Dim) -> tuple[str, ...]:
    """The keys a dimension depends on, in the order they are written."""
    factors = (factor for term in dim.terms for factor in term)
    return tuple(counted(factor) or factor for factor in factors if not _is_number(factor))


def counted(factor: str) -> str:
    """The key whose entries a factor counts, or the empty string if it counts none."""
    match = _COUNT.fullmatch(factor)
    return match[1] if match else ""


def evaluate(dim: Dim, values: Mapping[str, Value]) -> int:
    """The number a dimension is for these canonical values.

    Raises KeyError for a key that has no value yet.
    """
    return sum(prod(_factor(factor, values) for factor in term) for term in dim.terms)


def _factor(factor: str, values: Mapping[str, Value]) -> int:
    if _is_number(factor):
        return int(factor)
    listed = counted(factor)
    value = values[listed or factor]
    if listed:
        if isinstance(value, tuple):
            return len(value)
    elif type(value) is int:
        return value
    raise KeyError(factor)


def _is_number(factor: str) -> bool:
    return factor == "-1" or factor[0].isdigit()


def applies(when: Mapping[str, Value] | None, values: Mapping[str, Value]) -> bool:
    """Whether every key named has the value asked for; a list must hold it.

    A key without a value meets no condition.
    """
    return all(
        key in values and _holds(values[key], wanted) for key, wanted in (when or {}).items()
    )


def _holds(value: Value, wanted: Value) -> bool:
    if isinstance(value, tuple | frozenset):
        return wanted in value
    return same(value, wanted)


def same(first: Value, second: Value) -> bool:
    """Whether two values are equal and of one kind: `true` is not 1, while 1 and 1.0 are."""
    if isinstance(first, bool) != isinstance(second, bool):
        return False
    return first == second
