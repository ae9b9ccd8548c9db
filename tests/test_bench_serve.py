from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from benchmarks import serve
from benchmarks.route import Gate
from benchmarks.serve_clients import CUT, LEFT, MALFORMED, load, settled
from tests.runtime.serve.parts import byte_engine, served


def test_what_clients_see_is_what_the_server_counts() -> None:
    with served(byte_engine(False), model="tiny") as up:
        seen = asyncio.run(load(up.url, 4, 1.5, leave=0.2, malformed=0.3))
        metrics = asyncio.run(settled(up.url))

    assert 0 == seen.answers[CUT]
    assert {"200", LEFT, "400"} <= set(seen.answers) <= {"200", LEFT, "400", "404"}
    assert 0 < seen.tokens <= metrics["dspark_returned_tokens_total"]
    assert len(seen.first) + len(seen.between) == seen.tokens
    assert 0 == metrics['dspark_kv_pages{state="held"}']


def test_every_malformed_body_is_refused() -> None:
    with served(byte_engine(False), model="tiny") as up:
        for body in MALFORMED:
            answer = up.http.post(
                "/v1/completions", content=body, headers={"content-type": "application/json"}
            )
            assert answer.status_code in (400, 404), body


def test_the_log_tells_what_was_left_unanswered(tmp_path: Path) -> None:
    log = tmp_path / "log"
    lines = [
        {"event": "listening"},
        {"event": "request", "status": 200, "code": None},
        {"event": "request", "status": 429, "code": "queue_full"},
        {"event": "request", "status": 200, "code": "client_disconnected"},
        {"event": "request", "status": None, "code": None},
    ]
    log.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")

    assert 2 == serve.unfinished(log)


@pytest.mark.parametrize(("measured", "code"), [(0.0, 0), (1.0, 1)])
def test_one_missed_gate_fails_the_run(
    measured: float, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    gates = [Gate("pages held at the end", measured, 0, "")]
    monkeypatch.setattr(serve, "rough_weather", lambda *_: gates)
    monkeypatch.setattr(serve, "sudden_end", lambda *_: [])
    monkeypatch.setattr(serve, "batching", lambda *_: [])

    assert code == serve.main(["--clients", "1", "--seconds", "1"])
    assert [str(gate) for gate in gates] == capsys.readouterr().out.splitlines()
