"""The strict JSON of a config.json: one meaning per file, or a named refusal.

A good file is read by the standard library's C scanner alone. Only when that objects, or when the
text holds something it would let through, does a slower second pass look for the first fault and
say where it is. The second pass keeps its own stack, so the depth that is refused is a number
here and not a property of the interpreter.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable

from dspark.errors import Unreadable

LARGEST_CONFIG = 1024 * 1024
"""Bytes; the largest published configs, with their label maps, are ten times smaller. The second
pass reads a hostile file of this size in about a second."""

DEEPEST_NESTING = 64
"""Objects and arrays inside each other; published configs reach 6."""

_LFS_POINTER = b"version https://git-lfs.github.com/spec/"
_UTF8_BOM = b"\xef\xbb\xbf"
_INT64 = 2**63
_LONGEST_INT64 = 20  # characters of -9223372036854775808
_LONGEST_LITERAL = 24  # shown of a number: all that fits 64 bits, and a telling part of the rest


def parse_config(data: bytes) -> dict[str, object]:
    """The object that `data`, the bytes of a config.json, means and can only mean.

    Of a longer file, `LARGEST_CONFIG + 1` bytes are enough. Refusals say where the first fault
    starts, in lines and columns that count from 1, in characters.

    Raises `Unreadable`: `config-too-large`, `config-empty`, `config-is-lfs-pointer`,
    `config-has-bom`, `config-not-utf8`, `config-too-deep`, `config-invalid-json`,
    `config-duplicate-key`, `config-not-finite`, `number-out-of-range`, `config-not-object`.
    """
    text = _decoded(data)
    # As many brackets as levels are allowed cannot be nested deeper, whatever their order.
    if text.count("[") + text.count("{") > DEEPEST_NESTING:
        _refuse_first_fault(text)
    try:
        value = _DECODER.decode(text)
    except (json.JSONDecodeError, _Fault):
        _refuse_first_fault(text)
        # INVARIANT: the second pass accepts nothing that the first one refuses.
        raise AssertionError("a fault that the second pass did not find") from None
    if "\\u" in text and _SURROGATE_ESCAPE.search(text):
        _refuse_first_fault(text)
    if type(value) is not dict:
        raise Unreadable("config-not-object", found=_found(value))
    return value


def _decoded(data: bytes) -> str:
    if len(data) > LARGEST_CONFIG:
        raise Unreadable("config-too-large", limit=LARGEST_CONFIG)
    if not data or data.isspace():
        raise Unreadable("config-empty")
    if data.startswith(_LFS_POINTER):
        raise Unreadable("config-is-lfs-pointer")
    if data.startswith(_UTF8_BOM):
        raise Unreadable("config-has-bom")
    # ASCII in UTF-16 or UTF-32 is valid UTF-8 too, with a zero among the first two bytes.
    offset = data[:2].find(0)
    if offset < 0:
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError as error:
            offset = error.start
    raise Unreadable("config-not-utf8", offset=offset, byte=f"0x{data[offset]:02x}")


_State = Callable[[], "_State | None"]


class _Fault(Exception):
    """Something that the C scanner would accept; the second pass says what and where."""


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise _Fault
    return result


def _integer(literal: str) -> int:
    # The length goes first: from 4300 digits on, CPython refuses with a plain ValueError.
    if len(literal) > _LONGEST_INT64 or not -_INT64 <= (value := int(literal)) < _INT64:
        raise _Fault
    return value


def _finite(literal: str) -> float:
    value = float(literal)
    if math.isinf(value):
        raise _Fault
    return value


def _constant(_: str) -> object:
    raise _Fault


_DECODER = json.JSONDecoder(
    object_pairs_hook=_unique, parse_int=_integer, parse_float=_finite, parse_constant=_constant
)

_SPACE = re.compile(r"[ \t\n\r]*+")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)((?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)")
_WORD = re.compile(r"true|false|null")
_NOT_FINITE = re.compile(r"NaN|-?Infinity")
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]++|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*+')
_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")
_SURROGATE = re.compile("[\ud800-\udfff]")
_HINTS = {
    "": ", and the file ends",
    "'": ", and single quotes are not JSON",
    "/": ", and comments are not JSON",
    "#": ", and comments are not JSON",
}


def _refuse_first_fault(text: str) -> None:
    """Raises `Unreadable` for the first fault in file order; returns if there is none."""
    state: _State | None = _Scan(text).value
    while state is not None:
        state = state()


class _Scan:
    """The second pass. Each method reads what may come next and returns its successor."""

    __slots__ = ("keys", "name", "position", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0
        self.name = "(top level)"
        self.keys: list[set[str] | None] = []
        """The keys so far of each open object; None for an open array."""

    def value(self) -> _State:
        start = self._next()
        if start == '"':
            self._string()
        elif start in ("{", "["):
            return self._open(start)
        elif word := _WORD.match(self.text, self.position):
            self.position = word.end()
        elif number := _NUMBER.match(self.text, self.position):
            self._number(number[0], exact=not number[1])
            self.position = number.end()
        elif constant := _NOT_FINITE.match(self.text, self.position):
            raise self._refusal("config-not-finite", literal=constant[0])
        else:
            raise self._invalid("a value")
        return self.after

    def first_value(self) -> _State:
        return self._close if self._next() == "]" else self.value

    def first_key(self) -> _State:
        return self._close if self._next() == "}" else self.key

    def key(self) -> _State:
        if self._next() != '"':
            raise self._invalid("a key in double quotes")
        start = self.position
        self.name = self._string()
        keys = self.keys[-1]
        assert keys is not None  # INVARIANT: only an open object leads here
        if self.name in keys:
            self.position = start
            raise self._refusal("config-duplicate-key", key=self.name)
        keys.add(self.name)
        if self._next() != ":":
            raise self._invalid("`:`")
        self.position += 1
        return self.value

    def after(self) -> _State | None:
        found = self._next()
        if not self.keys:
            if found:
                raise self._invalid("the end of the file")
            return None
        in_array = self.keys[-1] is None
        closing = "]" if in_array else "}"
        if found == closing:
            return self._close
        if found != ",":
            raise self._invalid(f"`,` or `{closing}`")
        comma = self.position
        self.position += 1
        if self._next() == closing:
            self.position = comma
            raise self._refusal("config-invalid-json", detail="a trailing comma")
        return self.value if in_array else self.key

    def _open(self, bracket: str) -> _State:
        if len(self.keys) == DEEPEST_NESTING:
            raise self._refusal("config-too-deep", limit=DEEPEST_NESTING)
        self.position += 1
        self.keys.append(set() if bracket == "{" else None)
        return self.first_key if bracket == "{" else self.first_value

    def _close(self) -> _State:
        self.position += 1
        self.keys.pop()
        return self.after

    def _next(self) -> str:
        space = _SPACE.match(self.text, self.position)
        assert space is not None  # INVARIANT: the pattern matches the empty string
        self.position = space.end()
        return self.text[self.position : self.position + 1]

    def _string(self) -> str:
        match = _STRING.match(self.text, self.position)
        assert match is not None  # INVARIANT: a quote is here
        end = match.end()
        if not self.text.startswith('"', end):
            detail = "a string without an end"
            if end < len(self.text):
                self.position = end
                detail = "a control character" if self.text[end] < " " else "an invalid escape"
                detail += " in a string"
            raise self._refusal("config-invalid-json", detail=detail)
        result = str(json.loads(match[0] + '"'))
        if _SURROGATE.search(result):
            detail = "half of a surrogate pair in a string"
            raise self._refusal("config-invalid-json", detail=detail)
        self.position = end + 1
        return result

    def _number(self, literal: str, *, exact: bool) -> None:
        try:
            _integer(literal) if exact else _finite(literal)
        except _Fault:
            if len(literal) > _LONGEST_LITERAL:
                literal = f"{literal[:12]}... ({len(literal)} characters)"
            raise self._refusal("number-out-of-range", key=self.name, literal=literal) from None

    def _invalid(self, expected: str) -> Unreadable:
        hint = _HINTS.get(self.text[self.position : self.position + 1], "")
        return self._refusal("config-invalid-json", detail=f"expected {expected}{hint}")

    def _refusal(self, rule_name: str, **values: object) -> Unreadable:
        line_start = self.text.rfind("\n", 0, self.position) + 1
        line = self.text.count("\n", 0, line_start) + 1
        return Unreadable(rule_name, **values, line=line, column=self.position - line_start + 1)


def _found(value: object) -> str:
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, str):
        return "a string"
    return "an array" if isinstance(value, list) else "a number"
