"""What happens when there is too much, too long, too large, or nobody left to answer."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from openai import OpenAI, RateLimitError

from dspark.runtime import ServeSettings
from tests.runtime.serve.parts import (
    MODEL,
    WAIT,
    Served,
    byte_engine,
    eventually,
    served,
    slowed,
)

LONG: dict[str, Any] = {"model": MODEL, "prompt": "the", "max_tokens": 240, "ignore_eos": True}
SHORT: dict[str, Any] = LONG | {"max_tokens": 2}


@pytest.fixture(scope="module")
def slow() -> Iterator[Served]:
    """Two places to run and one to wait; a long request takes seconds."""
    engine = slowed(byte_engine(False, max_batch=2), 0.02)
    with served(engine, settings=ServeSettings(max_queue=1, max_choices=9)) as up:
        yield up


def quiet(up: Served) -> bool:
    return up.engine.pages_held == 0 and not up.engine.busy


def test_a_full_queue_turns_away_at_once(slow: Served) -> None:
    eventually(lambda: quiet(slow))
    with slow.http.stream("POST", "/v1/completions", json=LONG | {"stream": True, "n": 3}) as taken:
        lines = taken.iter_lines()  # closed with its last reference, and the answer with it
        next(lines)
        assert 3 == slow.metric("dspark_under_way")
        # The engine takes them one after the other, between its passes.
        eventually(lambda: slow.metric("dspark_queue_depth") == 1)
        assert 2 == slow.metric("dspark_running")

        started = time.monotonic()
        refused = slow.http.post("/v1/completions", json=SHORT)
        took = time.monotonic() - started

        assert 429 == refused.status_code
        assert "queue_full" == refused.json()["error"]["code"]
        assert int(refused.headers["retry-after"]) >= 1
        assert took < 1
        with (
            OpenAI(base_url=f"{slow.url}/v1", api_key="none", max_retries=0) as client,
            pytest.raises(RateLimitError, match="3 requests are under way"),
        ):
            client.completions.create(model=MODEL, prompt="the")
    eventually(lambda: quiet(slow))
    assert 200 == slow.http.post("/v1/completions", json=SHORT).status_code


def test_more_choices_than_places_never_fit(slow: Served) -> None:
    refused = slow.http.post("/v1/completions", json=SHORT | {"n": 4})

    assert (400, "too_many_choices") == (refused.status_code, refused.json()["error"]["code"])


def raw_post(up: Served, body: str) -> socket.socket:
    """A connection that has sent a request, and can be cut."""
    url = httpx2.URL(up.url)
    connection = socket.create_connection((url.host, url.port), timeout=WAIT)
    head = (
        "POST /v1/completions HTTP/1.1\r\nhost: here\r\ncontent-type: application/json\r\n"
        f"content-length: {len(body)}\r\n\r\n"
    )
    connection.sendall((head + body).encode())
    return connection


@pytest.mark.parametrize("stream", ["true", "false"])
def test_who_hangs_up_frees_pages_and_place(slow: Served, stream: str) -> None:
    eventually(lambda: quiet(slow))
    decoded = slow.engine.statistics.completion_tokens
    body = (
        '{"model": "bytes", "prompt": "the", "max_tokens": 240, "ignore_eos": true, "n": 3,'
        f' "stream": {stream}}}'
    )
    with raw_post(slow, body) as connection:
        eventually(lambda: slow.engine.running == 2 and slow.engine.waiting == 1)
        assert slow.engine.pages_held > 0
        if stream == "true":
            assert connection.recv(15) == b"HTTP/1.1 200 OK"

    eventually(lambda: quiet(slow))
    eventually(lambda: slow.metric("dspark_under_way") == 0)
    assert slow.engine.statistics.completion_tokens - decoded < 3 * 240
    eventually(lambda: slow.metric("dspark_errors_total", code="client_disconnected") > 0)


def test_a_request_that_takes_too_long_ends() -> None:
    engine = slowed(byte_engine(False), 0.05)
    with served(engine, settings=ServeSettings(request_timeout=0.5)) as up:
        whole = up.http.post("/v1/completions", json=LONG)
        assert (504, "request_timeout") == (whole.status_code, whole.json()["error"]["code"])
        eventually(lambda: quiet(up))

        streamed = up.http.post("/v1/completions", json=LONG | {"stream": True})
        assert 200 == streamed.status_code
        events = streamed.text.strip().split("\n\n")
        assert "request_timeout" in events[-2]
        assert "data: [DONE]" == events[-1]
        eventually(lambda: quiet(up))
        eventually(lambda: up.metric("dspark_errors_total", code="request_timeout") == 2)


def test_a_body_that_is_too_large_is_not_read() -> None:
    with served(byte_engine(False), settings=ServeSettings(max_body_bytes=1000)) as up:
        announced = up.http.post("/v1/completions", json=SHORT | {"user": "x" * 1000})
        in_pieces = up.http.post(
            "/v1/completions",
            content=iter([b'{"user": "', b"x" * 1000]),
            headers={"content-type": "application/json"},
        )
        fits = up.http.post("/v1/completions", json=SHORT)

    for refused in (announced, in_pieces):
        assert (413, "request_too_large") == (
            refused.status_code,
            refused.json()["error"]["code"],
        )
    assert 200 == fits.status_code


def test_a_body_that_does_not_come_is_not_waited_for() -> None:
    engine = slowed(byte_engine(False), 0.05)
    with served(engine, settings=ServeSettings(body_timeout=0.2)) as up:
        url = httpx2.URL(up.url)
        with socket.create_connection((url.host, url.port), timeout=WAIT) as connection:
            connection.sendall(
                b"POST /v1/completions HTTP/1.1\r\nhost: here\r\n"
                b"content-type: application/json\r\ncontent-length: 50\r\n\r\n{"
            )
            assert b"408" in connection.recv(100)
        # Once it is there, the answer takes the time it takes.
        for stream in (False, True):
            answer = up.http.post(
                "/v1/completions", json=LONG | {"max_tokens": 8, "stream": stream}
            )
            assert 200 == answer.status_code
            assert "length" in answer.text


def test_a_prompt_that_is_too_long_is_refused(server: Served) -> None:
    refused = server.http.post("/v1/completions", json=SHORT | {"prompt": "x" * 256})

    assert 400 == refused.status_code
    assert "context_length_exceeded" == refused.json()["error"]["code"]
    assert "the prompt has 256 tokens" in refused.json()["error"]["message"]


def test_many_clients_and_some_of_them_leave() -> None:
    engine = byte_engine(max_batch=4)
    with served(engine, settings=ServeSettings(max_queue=100)) as up:

        async def one(client: httpx2.AsyncClient, number: int) -> int:
            body = LONG | {"max_tokens": 20, "stream": number % 2 == 0}
            timeout = 0.3 if number % 5 == 0 else WAIT
            try:
                answer = await client.post("/v1/completions", json=body, timeout=timeout)
            except httpx2.TimeoutException:
                return 0
            return answer.status_code

        async def main() -> list[int]:
            async with httpx2.AsyncClient(base_url=up.url) as client:
                return await asyncio.gather(*(one(client, number) for number in range(20)))

        codes = asyncio.run(main())
        eventually(lambda: quiet(up))

    assert {200} == set(codes) - {0}
    assert 0 < codes.count(0) <= 4
