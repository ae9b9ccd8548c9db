"""JSON values as the types a contract asks for, strictly: `true` is not 1, `7.0` and `"7"` no 7.

A number is held against its range before it is converted: an integer of a thousand digits is out of
range and no overflow.
"""

from __future__ import annotations

import math

from dspark.contract import Key, KeyPlace, Value

LISTS = {"integers": "integer", "texts": "text"}
"""Types that are lists -> the type of their entries."""
TYPES = ("integer", "number", "boolean", "text", *LISTS)
RANGED = ("integer", "number", "integers")
"""Types whose values must have a range."""


def has_type(value: object, kind: str) -> bool:
    """Whether a JSON value is of a contract's type."""
    if kind in LISTS:
        return isinstance(value, list | tuple) and all(has_type(e, LISTS[kind]) for e in value)
    if kind == "integer":
        return type(value) is int
    if kind == "number":
        return type(value) in (int, float)
    return isinstance(value, bool if kind == "boolean" else str)


def in_range(value: object, key: Key, place: KeyPlace | None = None) -> bool:
    """Whether a value of the key's type is within its range; `place` says what it is reduced by."""
    if key.type in LISTS:
        assert isinstance(value, list | tuple)  # INVARIANT: the caller has checked the type
        return bool(value) and all(_in_range(entry, key, place) for entry in value)
    return _in_range(value, key, place)


def _in_range(value: object, key: Key, place: KeyPlace | None) -> bool:
    if key.range is None:
        return True
    assert isinstance(value, int | float)  # INVARIANT: only numbers have a range
    least, greatest = bounds(key, place)
    return least <= value <= greatest


def bounds(key: Key, place: KeyPlace | None = None) -> tuple[float, float]:
    """The least and the greatest value allowed, as they are written at `place`."""
    assert key.range is not None  # INVARIANT: the caller has a ranged key
    shift = place.minus if place is not None else 0
    return key.range[0] + shift, key.range[1] + shift


def convert(value: object, key: Key, place: KeyPlace | None = None) -> Value:
    """The canonical value of a JSON value whose type and range are right."""
    if key.type == "number":
        assert isinstance(value, int | float)  # INVARIANT: the caller has checked the type
        return float(value)
    minus = place.minus if place is not None else 0
    if isinstance(value, list | tuple):
        return tuple(entry - minus for entry in value) if minus else tuple(value)
    if isinstance(value, bool):
        return not value if place is not None and place.negate else value
    return value - minus if isinstance(value, int) else value


def number_text(value: float) -> str:
    """A bound as its author wrote it, without an exponent where digits are as short."""
    if isinstance(value, int) or (math.isfinite(value) and value == int(value) and value < 1e16):
        return str(int(value))
    return repr(value)
