"""What is written down about a request, and what is not."""

from __future__ import annotations

import json
import logging
from typing import Any

import httpx2
import pytest

from dspark.runtime import ServeSettings
from dspark.runtime.serve import models
from dspark.runtime.serve.logs import JsonLines
from tests.runtime.serve.parts import MODEL, byte_engine, eventually, served

SECRET = "the secret fox"
BODY: dict[str, Any] = {"model": MODEL, "prompt": SECRET, "max_tokens": 3, "user": SECRET}


def lines(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    form = JsonLines({"host": "here"})
    return [json.loads(form.format(record)) for record in caplog.records]


@pytest.mark.parametrize("log_text", [False, True])
def test_text_is_logged_only_if_asked_for(caplog: pytest.LogCaptureFixture, log_text: bool) -> None:
    caplog.set_level(logging.INFO, "dspark.serve")
    with served(byte_engine(False), settings=ServeSettings(log_text=log_text)) as up:
        answers = [
            up.http.post("/v1/completions", json=BODY),
            up.http.post("/v1/completions", json=BODY | {"stream": True}),
            up.http.post("/v1/completions", json=BODY | {"n": "x"}),
            up.http.post(
                "/v1/chat/completions",
                json={"model": MODEL, "messages": [{"role": "user", "content": SECRET}], "seed": 1},
            ),
        ]
        up.http.get("/health")
        eventually(lambda: len(lines(caplog)) == 4)

    found = lines(caplog)
    assert [200, 200, 400, 200] == [line["status"] for line in found]
    assert [answer.headers["x-request-id"] for answer in answers] == [
        line["request_id"] for line in found
    ]
    assert [3, 3, 0] == [line["completion_tokens"] for line in found[:3]]
    assert [False, True, False] == [line["stream"] for line in found[:3]]
    assert "invalid_value" == found[2]["code"]
    for line in found:
        assert {"time", "level", "event", "table_version", "rule_id", "host"} <= line.keys()
    assert log_text == any(SECRET in json.dumps(line) for line in found)
    if log_text:
        assert [SECRET] == found[0]["prompts"]
        assert [answers[0].json()["choices"][0]["text"]] == found[0]["answers"]
        assert [""] != found[1]["answers"] != []
        assert f"<|start|>user\n{SECRET}<|end|>\n<|start|>assistant\n" == found[3]["prompts"][0]


def test_an_error_nobody_expected_is_a_500_with_its_trace_in_the_log(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise RuntimeError("a bug")

    monkeypatch.setattr(models, "ModelList", broken)
    with served(byte_engine(False)) as up:
        answer = up.http.get("/v1/models")
        eventually(lambda: len(lines(caplog)) > 0)

    assert (500, "internal_error") == (answer.status_code, answer.json()["error"]["code"])
    assert "a bug" not in answer.text
    (line,) = [line for line in lines(caplog) if line["event"] == "internal_error"]
    assert "RuntimeError: a bug" in line["trace"]
    assert answer.headers["x-request-id"] == line["request_id"]


def test_unknown_paths_and_methods_are_errors_of_the_same_shape() -> None:
    with served(byte_engine(False)) as up:
        answers: list[httpx2.Response] = [
            up.http.get("/v1/completions"),
            up.http.get("/nowhere"),
            up.http.post("/metrics"),
        ]
        assert 2 == up.metric("dspark_errors_total", code="method_not_allowed")
        assert 1 == up.metric("dspark_http_requests_total", path="other", status="404")

    assert [405, 404, 405] == [answer.status_code for answer in answers]
    assert ["method_not_allowed", "not_found", "method_not_allowed"] == [
        answer.json()["error"]["code"] for answer in answers
    ]
    assert "POST" == answers[0].headers["allow"]
