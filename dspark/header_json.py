"""The JSON of safetensors headers and indexes, read so that nothing in it can mean two things.

Validity is that of the `safetensors` library, and stricter in two places: a key written twice and
an integer of more than 64 bits are refused, where that library keeps one value of several or
rounds.
"""

from __future__ import annotations

import json
import math
from typing import NoReturn

U64_MAX = 2**64 - 1


class Malformed(Exception):
    """Why a document is not what it should be, as words that follow "it is"."""


def parse_object(data: bytes) -> dict[str, object]:
    """The JSON object in `data`, every value as its author wrote it and none of them twice.

    Raises `Malformed` for anything else: other encodings, other top levels, repeated keys, NaN,
    numbers beyond 64 bits or a double, escapes that are not text, bottomless nesting.
    """
    try:
        text = data.decode("utf-8")
        value = json.loads(
            text,
            object_pairs_hook=_unique,
            parse_int=_integer,
            parse_float=_finite,
            parse_constant=_no_constant,
        )
        if "\\u" in text:
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeDecodeError as error:
        raise Malformed(f"not UTF-8 at byte {error.start}") from None
    except UnicodeEncodeError:
        raise Malformed("not text: it escapes half of a surrogate pair") from None
    except json.JSONDecodeError as error:
        raise Malformed(f"not JSON at character {error.pos}") from None
    except RecursionError:
        raise Malformed("nested too deeply") from None
    if type(value) is not dict:
        raise Malformed("not a JSON object")
    return value


def shown(text: str) -> str:
    """`text` fit for one line of a message: clipped, with control characters escaped."""
    clipped = text if len(text) <= 120 else text[:117] + "..."
    return clipped if clipped.isprintable() else clipped.encode("unicode_escape").decode("ascii")


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    result = dict(pairs)
    if len(result) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise Malformed(f"ambiguous: it has the key `{shown(key)}` twice")
            seen.add(key)
    return result


def _integer(literal: str) -> int | float:
    if literal == "-0":
        return -0.0  # not an integer to the library either
    if len(literal) > 20 or (value := int(literal)) > U64_MAX:
        raise Malformed(f"out of range: it has the number `{shown(literal)}`")
    return value


def _finite(literal: str) -> float:
    value = float(literal)
    if math.isinf(value):
        raise Malformed(f"out of range: it has the number `{shown(literal)}`")
    return value


def _no_constant(literal: str) -> NoReturn:
    raise Malformed(f"not JSON: it has the value `{literal}`")
