from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dspark.runtime.serve.errors import ApiError
from dspark.runtime.serve.json_body import parse_body
from tests.runtime.serve.parts import Served

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**64) + 1, 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(JSON, st.booleans())
def test_json_is_read_as_it_was_written(value: object, ascii_only: bool) -> None:
    assert value == parse_body(json.dumps(value, ensure_ascii=ascii_only).encode())


@pytest.mark.parametrize(
    ("body", "message", "param"),
    [
        (b'{"n": 1, "n": 2}', "the key `n` is written twice", "n"),
        (b'{"a": {"n": 1, "n": 2}}', "the key `n` is written twice", "n"),
        (b'{"top_p": NaN}', "`NaN` is not a number", None),
        (b'{"top_p": -Infinity}', "`-Infinity` is not a number", None),
        (b'{"top_p": 1e999}', "the number `1e999` is out of range", None),
        (b'{"seed": ' + b"9" * 5000 + b"}", "is out of range", None),
        (b'{"seed": 18446744073709551616}', "is out of range", None),
        (b'{"prompt": "\\ud800"}', "half of a surrogate pair", None),
        (b'{"\\udc00": 1}', "half of a surrogate pair", None),
        (b'{"prompt": "\xff"}', "not UTF-8 at byte 12", None),
        (b'{"prompt": "x"', "line 1, column 15", None),
        (b"[" * 200_000, "too many nested levels", None),
        (b"", "line 1, column 1", None),
    ],
)
def test_what_readers_disagree_about_is_refused(
    body: bytes, message: str, param: str | None
) -> None:
    with pytest.raises(ApiError) as refusal:
        parse_body(body)

    assert (400, "invalid_json") == (refusal.value.status_code, refusal.value.code)
    assert message in refusal.value.message
    assert param == refusal.value.param


def test_the_body_must_be_declared_to_be_json(server: Served) -> None:
    for path in ("/v1/completions", "/v1/chat/completions", "/v1/route"):
        for kind in ("text/plain", "application/x-www-form-urlencoded", None):
            headers = {} if kind is None else {"content-type": kind}
            answer = server.http.post(path, content=b"{}", headers=headers)
            assert (415, "unsupported_media_type") == (
                answer.status_code,
                answer.json()["error"]["code"],
            )
    answer = server.http.post(
        "/v1/completions", content=b"[1]", headers={"content-type": "application/json; charset=x"}
    )
    assert (400, "the body must be a JSON object") == (
        answer.status_code,
        answer.json()["error"]["message"],
    )
    answer = server.http.post(
        "/v1/completions", content=b'{"n": 1, "n": 2}', headers={"content-type": "application/json"}
    )
    assert "invalid_json" == answer.json()["error"]["code"]
