from __future__ import annotations

import re
from typing import Any

import pytest
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError

from dspark.runtime.serve.chat_schema import ChatRequest
from dspark.runtime.serve.completions_schema import CompletionRequest
from dspark.runtime.serve.errors import ApiError
from dspark.runtime.serve.schema import TextRequest
from dspark.runtime.serve.validation import validation_error

WRONG: list[Any] = [
    None, True, 0, -1, 10**9, 2**63, 0.5, -1e300, 1e300, "", "x", "x" * 2000, [], [[]], [1, "x"],
    [None], ["x"] * 99, [-1], {}, {"x": 1}, {"1": "x"}, {"1": 1000}, {"1": {}}, [{"role": "user"}],
    [{"role": "user", "content": 5}], [{"role": "user", "content": "", "x": 1}], ["x" * 2000],
    [{"role": "user", "content": [{"type": "text", "text": 1}]}], {str(n): 0 for n in range(2000)},
]  # fmt: skip


def error_of(kind: type[TextRequest], body: dict[str, Any]) -> ApiError | None:
    try:
        kind.model_validate(body)
    except ValidationError as found:
        errors = [{**error, "loc": ("body", *error["loc"])} for error in found.errors()]
        return validation_error(
            RequestValidationError(errors, body=body), list(kind.model_fields), kind.UNSUPPORTED
        )
    return None


@pytest.mark.parametrize("kind", [CompletionRequest, ChatRequest])
def test_every_wrong_value_is_an_error_that_names_its_field(kind: type[TextRequest]) -> None:
    valid: dict[str, Any] = {"model": "x", "prompt": "x"}
    if kind is ChatRequest:
        valid = {"model": "x", "messages": [{"role": "user", "content": "x"}]}
    assert error_of(kind, valid) is None
    refused = 0
    for field in kind.model_fields:
        for value in WRONG:
            error = error_of(kind, valid | {field: value})
            if error is None:
                continue
            refused += 1
            assert (400, True) == (error.status_code, error.param.startswith(field))
            assert f"`{error.param}`" in error.message
            # A type of Python's, or a word of pydantic's, is not for callers.
            assert not re.search(r"\b(int|str|list|dict|bool|None|[Ii]nput|valid)\b", error.message)
    assert refused > 100


@pytest.mark.parametrize(
    ("prompt", "param", "message"),
    [
        (5, "prompt", "`prompt` must be a string or an array"),
        ([], "prompt", "`prompt` must be at least 1 long"),
        ([1, "x"], "prompt[1]", "`prompt[1]` must be an integer or an array"),
        ([[1], [2, -1]], "prompt[1][1]", "`prompt[1][1]` must be at least 0"),
    ],
)
def test_of_several_shapes_the_closest_is_meant(prompt: Any, param: str, message: str) -> None:
    error = error_of(CompletionRequest, {"model": "x", "prompt": prompt})

    assert error is not None
    assert (param, message) == (error.param, error.message)


def test_a_misspelt_field_comes_before_the_one_it_leaves_out() -> None:
    error = error_of(CompletionRequest, {"model": "x", "promtp": "x"})

    assert error is not None
    assert ("promtp", "unknown_parameter") == (error.param, error.code)
    assert "there is no parameter `promtp`; did you mean `prompt`?" == error.message


def test_what_is_not_supported_is_told_from_what_is_not_known() -> None:
    for kind in (CompletionRequest, ChatRequest):
        assert set() == kind.UNSUPPORTED.keys() & kind.model_fields.keys()
        assert kind.INERT.keys() <= kind.UNSUPPORTED.keys()
