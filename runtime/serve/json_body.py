"""A request's body as JSON with exactly one meaning, and the route class that insists on it."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, NoReturn

from fastapi import Request, Response
from fastapi.routing import APIRoute

from dspark.runtime.serve.errors import ApiError

_LARGEST = 2**64


def parse_body(data: bytes) -> object:
    """The value that `data` stands for.

    Raises:
        ApiError: 400 `invalid_json`; also for what JSON readers disagree about, such as a key that
            is written twice, and for what is no Unicode text.
    """
    try:
        text = data.decode()
        value: object = json.loads(
            text,
            object_pairs_hook=_object,
            parse_constant=_refuse_constant,
            parse_int=_integer,
            parse_float=_number,
        )
        # Half a surrogate pair can only come from an escape.
        if "\\u" in text:
            json.dumps(value, ensure_ascii=False).encode()
    except UnicodeDecodeError as error:
        raise _invalid(f"not UTF-8 at byte {error.start}") from None
    except UnicodeEncodeError:
        raise _invalid("half of a surrogate pair in a string") from None
    except json.JSONDecodeError as error:
        raise _invalid(f"line {error.lineno}, column {error.colno}") from None
    except RecursionError:
        raise _invalid("too many nested levels") from None
    return value


def _invalid(detail: str, param: str | None = None) -> ApiError:
    return ApiError(400, f"the body is not valid JSON: {detail}", code="invalid_json", param=param)


def _object(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise _invalid(f"the key `{twice[:80]}` is written twice", twice[:80])
    return made


def _refuse_constant(word: str) -> NoReturn:
    raise _invalid(f"`{word}` is not a number")


def _integer(digits: str) -> int:
    # Beyond 20 digits int() alone could take long, or refuse.
    if len(digits.lstrip("-")) > 20 or not -_LARGEST < int(digits) < _LARGEST:
        raise _invalid(f"the number `{digits[:20]}...` is out of range")
    return int(digits)


def _number(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise _invalid(f"the number `{text[:20]}` is out of range")
    return value


class _StrictRequest(Request):
    async def json(self) -> object:
        return parse_body(await self.body())


class JsonRoute(APIRoute):
    """A route whose body is read by `parse_body`, and must be declared to be JSON.

    The declaration is not a formality: a web page can make a browser post anything but JSON to a
    server on the same machine without asking first.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def strict(request: Request) -> Response:
            kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
            if request.method == "POST" and kind != "application/json":
                raise ApiError(
                    415,
                    "the body must be JSON, with the header `content-type: application/json`",
                    code="unsupported_media_type",
                )
            return await handle(_StrictRequest(request.scope, request.receive))

        return strict
