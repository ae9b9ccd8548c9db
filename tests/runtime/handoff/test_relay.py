"""A request and its answer on the way through another process, without that process."""

from __future__ import annotations

import asyncio
import json
import pickle
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest
from starlette.requests import Request

from dspark.runtime.handoff.merged_metrics import merged
from dspark.runtime.handoff.relay import Call, Relayed
from dspark.runtime.serve.errors import ApiError


def call(body: object, *headers: tuple[str, str]) -> Call:
    raw = tuple((name.encode(), value.encode()) for name, value in headers)
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Call("POST", "/v1/completions", b"a=1", raw, ("10.0.0.9", 4000), text)


def chat(*turns: str) -> Call:
    roles = ["user", "assistant"] * len(turns)
    messages = [{"role": r, "content": c} for r, c in zip(roles, turns, strict=False)]
    return call({"messages": [{"role": "system", "content": "be brief"}, *messages]})


# ---------------------------------------------------------------------------------- sessions


def test_the_turns_of_a_conversation_are_one_session() -> None:
    first, second = chat("what is a tap?"), chat("what is a tap?", "a layer", "which one?")

    assert first.session
    assert first.session == second.session
    assert first.session != chat("what is a block?").session


def test_a_header_names_the_session() -> None:
    named = ("x-session-id", "a7")  # a server hands names over in lower case

    assert call({"prompt": "a"}, named).session == call({"prompt": "b"}, named).session
    assert call({"prompt": "a"}, named).session != call({"prompt": "a"}).session


def test_a_long_prompt_belongs_to_its_beginning() -> None:
    beginning = "x" * 256

    assert call({"prompt": beginning + "a"}).session == call({"prompt": beginning + "b"}).session
    assert call({"prompt": "x" * 255 + "a"}).session != call({"prompt": "x" * 255 + "b"}).session
    ids = list(range(256))
    assert call({"prompt": [*ids, 1]}).session == call({"prompt": [[*ids, 2], [3]]}).session


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"\xff",
        [],
        3,
        {},
        {"prompt": ""},
        {"prompt": []},
        {"prompt": 3},
        {"prompt": None},
    ],
)
def test_what_is_no_prompt_has_no_session(body: object) -> None:
    assert "" == call(body).session


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: (
            st.lists(inner) | st.dictionaries(st.sampled_from(["role", "content", "x"]), inner)
        ),
    )
)
def test_no_body_is_too_strange_to_have_a_session_or_none(value: object) -> None:
    for body in (value, {"prompt": value}, {"messages": value}, {"messages": [value]}):
        assert isinstance(call(body).session, str)


# ---------------------------------------------------------------------------------- requests


def test_a_request_is_the_same_on_the_other_side() -> None:
    sent = call({"prompt": "a"}, ("authorization", "Bearer key"), ("content-type", "text/json"))

    other = pickle.loads(pickle.dumps(sent))
    request = Request(other.scope)

    assert sent == other == Call.of(other.scope, other.body)
    assert "Bearer key" == request.headers["authorization"]
    assert ("/v1/completions", "1") == (request.url.path, request.query_params["a"])
    assert ("10.0.0.9", 4000) == request.client


# ----------------------------------------------------------------------------------- answers


class Lost(Exception):
    """What happens to a replica."""


def translate(failure: Exception) -> ApiError | None:
    return ApiError(502, "it died", code="replica_lost") if isinstance(failure, Lost) else None


def start(kind: str) -> dict[str, Any]:
    headers = [(b"content-type", kind.encode())]
    return {"type": "http.response.start", "status": 200, "headers": headers}


def part(body: bytes) -> dict[str, Any]:
    return {"type": "http.response.body", "body": body, "more_body": True}


def relay(*messages: dict[str, Any] | Exception) -> list[dict[str, Any]]:
    """What a client gets of the messages, or of an exception among them."""
    sent: list[dict[str, Any]] = []

    async def come() -> AsyncIterator[dict[str, Any]]:
        for message in messages:
            if isinstance(message, Exception):
                raise message
            yield message

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        raise AssertionError("nobody listens to the client here")

    scope = {"type": "http", "method": "POST", "path": "/", "headers": []}
    asyncio.run(Relayed(come(), translate)(scope, receive, send))
    return sent


def test_messages_are_passed_on_as_they_are() -> None:
    messages = [start("application/json"), part(b"{"), {"type": "http.response.body", "body": b"}"}]

    assert messages == relay(*messages)


def test_a_replica_that_dies_before_it_answers_is_an_error_of_ours() -> None:
    head, body = relay(Lost())

    error = json.loads(body["body"])["error"]
    assert 502 == head["status"]
    assert ("it died", "server_error", "replica_lost") == (
        error["message"],
        error["type"],
        error["code"],
    )


def test_a_replica_that_dies_in_a_stream_is_an_event_of_it() -> None:
    begun = [start("text/event-stream; charset=utf-8"), part(b"data: 1\n\n")]

    sent = relay(*begun, Lost())

    assert begun == sent[:2]
    event, done, end = sent[2:]
    assert "replica_lost" == json.loads(event["body"].removeprefix(b"data: "))["error"]["code"]
    assert b"data: [DONE]\n\n" == done["body"]
    assert {"type": "http.response.body", "body": b""} == end


def test_half_an_answer_is_not_passed_off_as_a_whole_one() -> None:
    with pytest.raises(Lost):
        relay(start("application/json"), part(b"{"), Lost())


def test_another_failure_is_not_given_a_name() -> None:
    with pytest.raises(KeyError):
        relay(KeyError("x"))


# ----------------------------------------------------------------------------------- metrics


def page(count: float) -> str:
    registry = CollectorRegistry()
    Counter("requests", "How many.", ["status"], registry=registry).labels("200").inc(count)
    Gauge("waiting", "How many wait.", registry=registry).set(count + 1)
    return generate_latest(registry).decode()


def test_the_figures_of_replicas_stand_side_by_side() -> None:
    text, kind = merged([("a", page(2)), ("b", page(5))])

    lines = [line for line in text.decode().splitlines() if "_created" not in line]
    assert kind.startswith("text/plain")
    assert [
        "# HELP requests_total How many.",
        "# TYPE requests_total counter",
        'requests_total{replica="a",status="200"} 2.0',
        'requests_total{replica="b",status="200"} 5.0',
        "# HELP waiting How many wait.",
        "# TYPE waiting gauge",
        'waiting{replica="a"} 3.0',
        'waiting{replica="b"} 6.0',
    ] == lines


def test_no_replica_has_no_figures() -> None:
    assert b"" == merged([])[0]


def test_a_body_nested_too_deep_has_no_beginning() -> None:
    assert "" == Call("POST", "/v1/completions", b"", (), None, b"[" * 100_000).session
