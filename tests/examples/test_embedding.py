"""The two examples of embedding run as they are."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import httpx2

from tests.runtime.serve.parts import WAIT, eventually, running

EXAMPLES = Path(__file__).parents[2] / "examples"


def example(name: str) -> ModuleType:
    spec = spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_one_engine_serves_the_users_routes_and_the_mounted_api() -> None:
    tiny = EXAMPLES / "tiny"
    app = example("embed_fastapi").build(tiny / "target", tiny / "dspark")
    service = app.routes[-1].app.state.service
    engine = service.engine.engine

    with running(app) as url, httpx2.Client(base_url=url, timeout=WAIT) as http:
        own = http.post("/continue", content=b"def main():")
        body = {"model": "tiny", "prompt": "def main():", "max_tokens": 64, "temperature": 0}
        mounted = http.post("/ai/v1/completions", json=body)
        nothing = http.post("/continue", content=b"")
        assert (400, "the prompt has no tokens") == (nothing.status_code, nothing.json()["detail"])
        assert own.text == mounted.json()["choices"][0]["text"] != ""
        assert 200 == http.get("/ai/health").status_code
        wrong = http.post("/ai/v1/completions", json={"model": "tiny", "promt": ""})
        assert "did you mean `prompt`?" in wrong.json()["error"]["message"]
        metrics = http.get("/ai/metrics").text
        assert 'dspark_http_requests_total{path="/v1/completions",status="200"} 1.0' in metrics
        assert f"dspark_rounds_total {engine.statistics.acceptance.rounds}.0" in metrics

        # Starlette cancels a stream whose client has gone at every step of its clean-up.
        with http.stream("POST", "/continue", content=b"class Point:") as answer:
            for _ in answer.iter_text():
                break
        eventually(lambda: not engine.busy)
        assert 0 == engine.pages_held
    assert not service.health.ready


def test_the_program_answers_everything_and_ends() -> None:
    done = subprocess.run(
        [sys.executable, EXAMPLES / "embed_asyncio.py", "def main():", "import os", "class P:"],
        capture_output=True,
        text=True,
        timeout=WAIT,
        check=True,
    )

    lines = done.stdout.splitlines()
    assert 5 == len(lines)
    assert "the first tokens of another" in lines[3]
    assert lines[4].endswith("tokens a round")
    assert "" == done.stderr


def test_an_app_whose_engine_does_not_run_says_so() -> None:
    from dspark.runtime import AsyncEngine, create_app
    from tests.runtime.serve.parts import MODEL, TOKENIZER, byte_engine

    app = create_app(AsyncEngine(byte_engine(False)), TOKENIZER, model=MODEL)
    with running(app) as url:
        answer = httpx2.post(f"{url}/v1/completions", json={"model": MODEL, "prompt": "x"})
        assert (503, "engine_not_running") == (
            answer.status_code,
            answer.json()["error"]["code"],
        )
        health = httpx2.get(f"{url}/health")
        assert (503, "starting", False) == (
            health.status_code,
            health.json()["status"],
            health.json()["live"],
        )
        assert 503 == httpx2.get(f"{url}/health/live").status_code
