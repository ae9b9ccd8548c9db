"""Whatever the description of the API allows, and what it does not, never ends in a 5xx."""

from __future__ import annotations

from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.runtime.serve.parts import MODEL, Served, byte_engine, served

TEXT = ["/v1/completions", "/v1/chat/completions"]
CHECKS = [
    schemathesis.checks.not_a_server_error,
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
]


def run(up: Served, cases: int) -> dict[str, set[int]]:
    """Asks `cases` times; the statuses that came back, by path."""
    schema = schemathesis.openapi.from_dict(up.http.get("/openapi.json").json())
    schema.config.update(base_url=up.url)
    operations = [found.ok() for found in schema.get_all_operations()]
    assert len(operations) >= 8
    text = [operation for operation in operations if operation.path in TEXT]
    rest = [operation for operation in operations if operation.path not in TEXT]
    statuses: dict[str, set[int]] = {}
    asked: list[int] = []

    for chosen, count in ((text, cases * 3 // 4), (rest, cases // 4)):
        strategy = st.one_of(operation.as_strategy() for operation in chosen)

        @settings(
            max_examples=count,
            deadline=None,
            derandomize=True,
            database=None,
            suppress_health_check=list(HealthCheck),
        )
        @given(strategy, st.sampled_from([True, True, False]))
        def ask(case: Any, valid_model: bool) -> None:
            # Without it no generated request would get past its model.
            if isinstance(case.body, dict) and valid_model and case.operation.path in TEXT:
                case.body["model"] = MODEL
                case.body["max_tokens"] = 3
            response = case.call(session=None, timeout=60)
            statuses.setdefault(case.operation.path, set()).add(response.status_code)
            asked.append(response.status_code)
            case.validate_response(response, checks=CHECKS)

        ask()
    assert len(asked) >= cases
    return statuses


def test_a_short_run(server: Served) -> None:
    statuses = run(server, 40)

    assert set(TEXT) <= statuses.keys()


@pytest.mark.slow
def test_two_thousand_cases() -> None:
    with served(byte_engine()) as up:
        statuses = run(up, 2000)

    for path in TEXT:
        assert {200, 400} <= statuses[path]
        assert max(statuses[path]) < 500


def test_the_description_is_complete(server: Served) -> None:
    document = server.http.get("/openapi.json").json()

    assert {
        "/v1/completions", "/v1/chat/completions", "/v1/models", "/v1/models/{model_id}",
        "/v1/route", "/health", "/health/live", "/health/ready", "/metrics",
    } == document["paths"].keys()  # fmt: skip
    for path in TEXT:
        answers = document["paths"][path]["post"]["responses"]
        assert {"application/json", "text/event-stream"} == answers["200"]["content"].keys()
        assert {"200", "4XX", "5XX"} == answers.keys()
