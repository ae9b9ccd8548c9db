"""The figures add up: with what callers got, and with what the engine counts."""

from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.runtime.serve.parts import MODEL, Served, byte_engine, eventually, served, texts

REPOSITORY = Path(__file__).parents[3]
DASHBOARD = REPOSITORY / "examples" / "grafana" / "dashboard.json"


def usage_of(answer: httpx2.Response) -> tuple[int, int]:
    usage = answer.json()["usage"]
    return usage["prompt_tokens"], usage["completion_tokens"]


def test_tokens_counted_are_tokens_returned() -> None:
    with served(byte_engine()) as up:
        requests: list[dict[str, Any]] = [
            {"prompt": text, "n": 1 + place % 2, "max_tokens": 10 + place, "ignore_eos": True}
            for place, text in enumerate(texts(12))
        ]

        def ask(body: dict[str, Any]) -> httpx2.Response:
            return up.http.post("/v1/completions", json=body | {"model": MODEL})

        with ThreadPoolExecutor(4) as pool:
            used = [usage_of(answer) for answer in pool.map(ask, requests)]
        eventually(lambda: not up.engine.busy)
        eventually(lambda: up.metric("dspark_request_seconds_count", path="/v1/completions") == 12)
        found = up.metrics()

    def value(name: str, **labels: str) -> float:
        return found[name, tuple(sorted(labels.items()))]

    completion = sum(tokens for _, tokens in used)
    assert completion == sum(body["n"] * body["max_tokens"] for body in requests)
    assert completion == value("dspark_returned_tokens_total")
    assert completion == value("dspark_engine_completion_tokens_total")
    choices = sum(body["n"] for body in requests)
    assert choices == value("dspark_engine_requests_total")
    assert choices == value("dspark_engine_finished_total")
    assert choices == value("dspark_time_to_first_token_seconds_count")
    assert completion - choices == value("dspark_inter_token_seconds_count")
    prompts = sum(tokens * body["n"] for (tokens, _), body in zip(used, requests, strict=True))
    assert prompts == value("dspark_engine_prompt_tokens_total")
    assert 12 == value("dspark_http_requests_total", path="/v1/completions", status="200")

    counts = up.engine.statistics.acceptance
    assert counts.rounds > 0
    # The first token of a choice comes from its prompt's pass.
    assert completion - choices == counts.round_tokens
    assert counts.rounds == value("dspark_rounds_total")
    assert counts.round_tokens == value("dspark_round_tokens_total")
    for place, (verified, accepted) in enumerate(
        zip(counts.verified, counts.accepted, strict=True), 1
    ):
        assert verified == value("dspark_drafts_verified_total", position=str(place))
        assert accepted == value("dspark_drafts_accepted_total", position=str(place))
    assert 5 == len(counts.verified)
    pages = up.engine.cache_statistics
    assert 0 == value("dspark_kv_pages", state="held")
    assert pages.kept == value("dspark_kv_pages", state="kept") > 0
    assert pages.pages == sum(value("dspark_kv_pages", state=s) for s in ("held", "kept", "free"))


def test_what_is_served_is_named(server: Served) -> None:
    (labels,) = [dict(labels) for name, labels in server.metrics() if name == "dspark_info"]

    assert {"version", "model", "table_version", "rule_id", "lane"} == labels.keys()
    assert MODEL == labels["model"]


def test_a_draft_that_is_of_no_use_is_reported() -> None:
    with served(byte_engine()) as up:
        before = up.http.get("/health").json()
        assert 0 == up.metric("dspark_draft_problem", problem="draft_ineffective")
        # Random weights: next to nothing is accepted.
        body = {"model": MODEL, "prompt": "the", "max_tokens": 150, "n": 2, "ignore_eos": True}
        assert 200 == up.http.post("/v1/completions", json=body).status_code

        after = up.http.get("/health")

        assert 1 == up.metric("dspark_draft_problem", problem="draft_ineffective")
    assert not before["draft_ineffective"]
    assert after.json()["draft_ineffective"]
    assert ["draft_ineffective"] == after.json()["problems"]
    # The text is right all the same, so requests may still be sent here.
    assert 200 == after.status_code


def exported(server: Served) -> dict[str, str]:
    """The name of every sample, and that of the metric it belongs to."""
    server.http.post("/v1/completions", json={"model": MODEL, "prompt": "the", "max_tokens": 8})
    server.http.post("/v1/completions", json={})
    server.http.post("/v1/route", json={})
    names = {"dspark_draft_skipped_total": "dspark_draft_skipped_total"}
    for family in text_string_to_metric_families(server.http.get("/metrics").text):
        for sample in family.samples:
            whole = family.name if family.type == "histogram" else sample.name
            if not sample.name.endswith("_created"):
                names[sample.name] = whole
    return names


@pytest.mark.parametrize("page", [DASHBOARD, REPOSITORY / "docs" / "serving.md"])
def test_every_metric_that_is_named_is_exported(server: Served, page: Path) -> None:
    names = exported(server)
    words = re.findall(r"\bdspark_[a-z_]+\b", page.read_text(encoding="utf-8"))

    assert words
    assert set() == set(words) - names.keys() - set(names.values())


def test_the_page_explains_every_metric(server: Served) -> None:
    page = (REPOSITORY / "docs" / "serving.md").read_text(encoding="utf-8")
    rows = set(re.findall(r"^\| `(dspark_[a-z_]+)`", page, re.M))

    assert rows == set(exported(server).values())


def test_the_dashboard_is_one() -> None:
    dashboard = json.loads(DASHBOARD.read_text(encoding="utf-8"))

    assert dashboard["title"] == "dspark serve"
    assert len(dashboard["panels"]) == len({panel["id"] for panel in dashboard["panels"]})
    for panel in dashboard["panels"]:
        assert all(target["expr"] for target in panel.get("targets", []))
