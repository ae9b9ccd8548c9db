"""When the service says that it can be used."""

from __future__ import annotations

from typing import Any

import pytest

from dspark.runtime import AsyncEngine, Engine, InvalidRequest, ServeSettings, create_app
from dspark.runtime.errors import NonFiniteLogits
from dspark.runtime.serve.health import Health
from tests.runtime.serve.parts import (
    MODEL,
    TOKENIZER,
    Served,
    byte_engine,
    eventually,
    served,
    slowed,
)
from tests.runtime.tiny import make_engine

BODY: dict[str, Any] = {"model": MODEL, "prompt": "the", "max_tokens": 4}


def failing(engine: Engine, error: Exception) -> list[Exception]:
    """Makes the engine's passes fail while the returned list holds the error."""
    step = engine.step
    errors = [error]

    def fails() -> Any:
        if errors:
            raise errors[0]
        return step()

    engine.step = fails  # type: ignore[method-assign]
    return errors


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (NonFiniteLogits("the target's logits are not finite numbers"), "are not finite numbers"),
        (RuntimeError("secret of a driver"), "an error that its log describes"),
    ],
)
def test_an_engine_that_failed_is_ready_once_it_has_worked_again(
    error: Exception, message: str
) -> None:
    engine = byte_engine(False)
    errors = failing(engine, error)
    with served(engine) as up:
        assert 200 == up.http.get("/health/ready").status_code
        answer = up.http.post("/v1/completions", json=BODY)
        assert (500, "engine_failed") == (answer.status_code, answer.json()["error"]["code"])
        assert message in answer.json()["error"]["message"]
        assert "secret" not in answer.text
        assert 503 == up.http.get("/health/ready").status_code
        assert 200 == up.http.get("/health/live").status_code
        assert message in up.http.get("/health").json()["reason"]
        assert 0 == up.metric("dspark_ready")

        errors.clear()
        assert 503 == up.http.get("/health").status_code
        assert 200 == up.http.post("/v1/completions", json=BODY).status_code
        eventually(lambda: up.http.get("/health").status_code == 200)
        assert up.http.get("/health").json()["reason"] is None
        assert 0 == engine.pages_held


@pytest.mark.parametrize("path", ["/health", "/health/live", "/health/ready"])
def test_a_load_balancer_may_ask_by_head(path: str, server: Served) -> None:
    told, asked = server.http.get(path), server.http.head(path)

    assert (200, b"") == (asked.status_code, asked.content)
    assert asked.headers["content-length"] == told.headers["content-length"] != "0"
    assert server.http.head("/v1/models").status_code == 405


def test_head_says_that_requests_should_go_elsewhere() -> None:
    with served(byte_engine(False)) as up:
        up.app.state.service.health.failed("a reason")

        assert [503, 200, 503] == [
            up.http.head(path).status_code for path in ("/health", "/health/live", "/health/ready")
        ]


def test_an_answer_that_has_begun_ends_with_the_error() -> None:
    engine = slowed(byte_engine(False), 0.02)
    with served(engine) as up:
        body = BODY | {"max_tokens": 200, "ignore_eos": True, "stream": True}
        with up.http.stream("POST", "/v1/completions", json=body) as answer:
            lines = answer.iter_lines()
            next(lines)
            failing(engine, NonFiniteLogits("the target's logits are not finite numbers"))
            rest = [line for line in lines if line]
    assert "engine_failed" in rest[-2]
    assert "data: [DONE]" == rest[-1]


def test_an_engine_without_a_tokenizer_is_not_served() -> None:
    with pytest.raises(InvalidRequest, match="needs its tokenizer"):
        create_app(make_engine(), TOKENIZER, model=MODEL)


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("max_queue", -1), ("max_choices", 0), ("max_body_bytes", 0), ("body_timeout", 0),
        ("request_timeout", float("nan")), ("drain_timeout", -1.0),
    ],
)  # fmt: skip
def test_a_setting_that_means_nothing_is_refused(setting: str, value: float) -> None:
    with pytest.raises(InvalidRequest, match=f"`{setting}` must be"):
        ServeSettings(**{setting: value})  # type: ignore[arg-type]


def test_a_request_older_than_the_failure_is_no_evidence() -> None:
    health = Health(AsyncEngine(make_engine()))
    older = health.epoch
    health.failed("a reason")
    began_since = health.epoch

    health.succeeded(older)
    assert "a reason" == health.reason

    health.succeeded(began_since)
    assert health.reason is None
