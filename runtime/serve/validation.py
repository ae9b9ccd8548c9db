"""What a schema found wrong with a body, as one error that names the field."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from fastapi.exceptions import RequestValidationError

from dspark.runtime.serve.errors import ApiError

_MUST_BE = {
    "bool_type": "true or false",
    "dict_type": "an object",
    "finite_number": "a finite number",
    "float_type": "a number",
    "greater_than": "above {gt}",
    "greater_than_equal": "at least {ge}",
    "int_from_float": "an integer",
    "int_type": "an integer",
    "less_than": "below {lt}",
    "less_than_equal": "at most {le}",
    "list_type": "an array",
    "literal_error": "{expected}",
    "model_attributes_type": "an object",
    "model_type": "an object",
    "string_pattern_mismatch": "a token id in decimal digits",
    "string_too_long": "at most {max_length} characters long",
    "string_too_short": "at least {min_length} characters long",
    "string_type": "a string",
    "too_long": "at most {max_length} long",
    "too_short": "at least {min_length} long",
}
"""By pydantic's error type, what the value must be. A test holds the schemas against this list."""


def validation_error(
    found: RequestValidationError,
    fields: Sequence[str] = (),
    unsupported: Mapping[str, str] | None = None,
) -> ApiError:
    """The first thing that is wrong, as a 400 that names the field in `param`.

    `fields` are those the body may have, `unsupported` those of OpenAI's that it may not, each
    with the reason.
    """
    errors = list(found.errors())
    body = found.body
    first = errors[0]
    if first["loc"][:1] != ("body",):
        name = str(first["loc"][-1])
        return ApiError(400, f"`{name}` cannot be read", code="invalid_value", param=name)
    if first["loc"] == ("body",):
        return ApiError(400, "the body must be a JSON object", code="invalid_value")
    # A misspelt field explains one that is missing, so it comes first.
    first = next((error for error in errors if error["type"] == "extra_forbidden"), first)
    named = [error for error in errors if error["loc"][1] == first["loc"][1]]
    paths = [_path(error, body) for error in named]
    deepest = max(paths, key=len)
    here = [error for error, path in zip(named, paths, strict=True) if path == deepest]
    param = _shown(deepest)
    kinds = {error["type"] for error in here}
    if "missing" in kinds:
        return ApiError(400, f"`{param}` is required", code="missing_parameter", param=param)
    if "extra_forbidden" in kinds:
        return _extra(param, fields if len(deepest) == 1 else (), unsupported or {})
    # Where several types are possible and the value has one of them, that is the one meant.
    meant = [error for error in here if not error["type"].endswith("_type")] or here
    texts = dict.fromkeys(_must_be(error) for error in meant)
    return ApiError(
        400, f"`{param}` must be {' or '.join(texts)}", code="invalid_value", param=param
    )


def _path(error: Mapping[str, Any], body: Any) -> tuple[str | int, ...]:
    """The part of the location that leads into the body; the rest names pydantic's own types."""
    path: list[str | int] = []
    for part in error["loc"][1:]:
        in_object = isinstance(body, dict) and part in body
        in_array = isinstance(body, list) and isinstance(part, int) and part < len(body)
        if in_object or in_array:
            body = body[part]
        elif error["type"] != "missing" or part != error["loc"][-1]:
            continue
        path.append(part)
    return tuple(path)


def _shown(path: Sequence[str | int]) -> str:
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part[:80]}" for part in path)
    return text.removeprefix(".")


def _must_be(error: Mapping[str, Any]) -> str:
    context = {
        name: f"{value:g}" if isinstance(value, float) else str(value).replace("'", "`")
        for name, value in error.get("ctx", {}).items()
    }
    return _MUST_BE[error["type"]].format(**context)


def _extra(param: str, fields: Sequence[str], unsupported: Mapping[str, str]) -> ApiError:
    if param in unsupported:
        return ApiError(
            400,
            f"`{param}` is not supported: {unsupported[param]}",
            code="unsupported_parameter",
            param=param,
        )
    return unknown_parameter(param, fields)


def unknown_parameter(param: str, fields: Collection[str]) -> ApiError:
    """A 400 for a field that no request has, with the one of `fields` that was probably meant."""
    close = get_close_matches(param, fields, n=1)
    hint = f"; did you mean `{close[0]}`?" if close else ""
    return ApiError(
        400, f"there is no parameter `{param}`{hint}", code="unknown_parameter", param=param
    )
