"""`/v1/route`: configs and repos, and never a file of this machine."""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from threading import enumerate as enumerate_threads
from typing import Any

import jsonschema
import pytest

import dspark
from dspark.observe import CONFIG_KEYS
from dspark.runtime import ServeSettings
from dspark.runtime.serve import lookups, route
from tests.runtime.serve.parts import Served, byte_engine, eventually, served

CONFIG = {"architectures": ["Qwen3DSparkModel"], "model_type": "qwen3", "markov_rank": 256}
SCHEMA = json.loads(
    (Path(dspark.__file__).parents[1] / "schemas/decision.schema.json").read_text(encoding="utf-8")
)


def decided(server: Served, body: str) -> dict[str, Any]:
    answer = server.http.post(
        "/v1/route", content=body, headers={"content-type": "application/json"}
    )
    assert 200 == answer.status_code
    decision: dict[str, Any] = answer.json()
    jsonschema.validate(decision, SCHEMA)
    return decision


def refusals(server: Served) -> float:
    found = server.metrics().items()
    return sum(value for (name, _), value in found if name == "dspark_refusals_total")


def test_a_config_gets_the_routers_decision(server: Served) -> None:
    expected = dspark.compile_table().route(CONFIG, "-").to_json()

    assert expected == decided(server, json.dumps(CONFIG))
    assert "qwen3-dspark" == expected["decision"]["lane"]  # type: ignore[index]


@pytest.mark.parametrize(
    ("body", "rule"),
    [
        ("{}", "E101"),
        ('{"architectures": ["Nobody"]}', "R000"),
        ('{"markov_rank": 1, "markov_rank": 2}', "E003"),
        ('{"block_size": 7,}', "E002"),
        ("[]", "E004"),
    ],
)
def test_a_config_is_judged_as_it_was_written(server: Served, body: str, rule: str) -> None:
    assert rule == decided(server, body)["decision"]["rule_id"]


@pytest.mark.parametrize(
    ("body", "param", "hint"),
    [
        ({"chekpoint": "owner/name"}, "chekpoint", "; did you mean `checkpoint`?"),
        ({"repo": "owner/name"}, "repo", ""),
        ({"checkpoint": "owner/name", "revision": "v1"}, "revision", ""),
        ({"architecture": ["Qwen3DSparkModel"]}, "architecture", "; did you mean `architectures`?"),
        ({"model": "a", "models": "b"}, "model", "; did you mean `model_type`?"),
        ({"x" * 99: 1}, "x" * 80, ""),
    ],
)
def test_a_body_that_is_neither_is_an_error_that_names_the_field(
    body: dict[str, object], param: str, hint: str, server: Served
) -> None:
    before = refusals(server)

    answer = server.http.post("/v1/route", json=body)

    assert 400 == answer.status_code
    assert {
        "message": f"there is no parameter `{param}`{hint}",
        "type": "invalid_request_error",
        "param": param,
        "code": "unknown_parameter",
    } == answer.json()["error"]
    # It is no checkpoint, so none was refused.
    assert before == refusals(server)


@pytest.mark.parametrize("key", sorted(CONFIG_KEYS))
def test_one_key_that_the_router_reads_makes_a_config(key: str, server: Served) -> None:
    found = decided(server, json.dumps({key: None, "author": "somebody"}))

    assert "E101" == found["decision"]["rule_id"]


def test_a_key_that_looks_misspelt_is_said_beside_the_decision(server: Served) -> None:
    config = {"architectures": ["Qwen3DSparkModel"], "model_typ": "qwen3", "markov_rank": 256}

    found = decided(server, json.dumps(config))

    assert "R018" == found["decision"]["rule_id"]
    assert [("W007", {"key": "model_typ", "meant": "model_type"})] == [
        (each["rule_id"], each["values"]) for each in found["warnings"]
    ]
    assert [] == decided(server, json.dumps(CONFIG))["warnings"]


def test_the_keys_of_a_config_are_looked_at_beside_the_loop(
    server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[bool] = []

    def look(*_: object) -> tuple[()]:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            looked.append(False)
        else:
            looked.append(True)
        return ()

    monkeypatch.setattr("dspark.noticed.noticed", look)

    decided(server, json.dumps(CONFIG))

    assert [False] == looked


def test_a_refusal_is_counted_by_its_rule(server: Served) -> None:
    decided(server, "{}")
    before = server.metric("dspark_refusals_total", rule_id="E101")

    decided(server, "{}")
    decided(server, json.dumps(CONFIG))

    assert before + 1 == server.metric("dspark_refusals_total", rule_id="E101")
    assert not any(dict(labels).get("rule_id") == "L001" for _, labels in server.metrics())


def test_no_name_reaches_a_local_file(
    server: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "owner" / "name"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    assert "qwen3-dspark" == dspark.route("owner/name").lane
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    asked = []

    def nothing(*arguments: Any, **_: Any) -> Any:
        asked.append(arguments)
        raise FileNotFoundError

    monkeypatch.setattr("huggingface_hub.get_hf_file_metadata", nothing)

    for name in (str(folder), "./owner/name", "../name", "-", "/etc/passwd", ""):
        found = decided(server, json.dumps({"checkpoint": name}))
        assert ("E014", []) == (found["decision"]["rule_id"], found["evidence"])
        assert "it is no repo id" in found["decision"]["refusal"]["message"]
    assert [] == asked
    found = decided(server, json.dumps({"checkpoint": "owner/name"}))
    assert 1 == len(asked)
    assert found["decision"]["lane"] is None


def test_a_repo_is_asked_for_without_the_servers_own_token(
    server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[str, Any] = {}

    class Metadata:
        size = 99

    def metadata(url: str, **options: Any) -> Metadata:
        seen["url"] = url
        seen["head"] = options
        return Metadata()

    def download(repo: str, file: str, **options: Any) -> str:
        path = Path(options["local_dir"]) / file
        path.write_text(json.dumps(CONFIG), encoding="utf-8")
        seen["get"] = options | {"repo": repo}
        return str(path)

    monkeypatch.setattr("huggingface_hub.get_hf_file_metadata", metadata)
    monkeypatch.setattr("huggingface_hub.hf_hub_download", download)

    found = decided(server, '{"checkpoint": "owner/name@v1"}')

    assert ("L001", "owner/name@v1") == (found["decision"]["rule_id"], found["source"])
    assert seen["head"]["token"] is False
    assert seen["get"]["token"] is False
    assert ("owner/name", "v1") == (seen["get"]["repo"], seen["get"]["revision"])
    assert not Path(seen["get"]["local_dir"]).exists()

    Metadata.size = route.LARGEST_CONFIG + 1
    assert "E009" == decided(server, '{"checkpoint": "owner/name"}')["decision"]["rule_id"]


def test_a_checkpoint_is_a_string(server: Served) -> None:
    answer = server.http.post("/v1/route", json={"checkpoint": 5})

    assert (400, "checkpoint") == (answer.status_code, answer.json()["error"]["param"])


def test_a_hub_that_never_answers_holds_nothing_up(monkeypatch: pytest.MonkeyPatch) -> None:
    released = Event()
    monkeypatch.setattr(lookups, "_AT_ONCE", 3)
    monkeypatch.setattr("huggingface_hub.get_hf_file_metadata", lambda *_, **__: released.wait())
    settings = ServeSettings(request_timeout=1.0)

    with served(byte_engine(False), settings=settings) as up, ThreadPoolExecutor(3) as clients:

        def ask() -> tuple[int, str]:
            answer = up.http.post("/v1/route", json={"checkpoint": "owner/name"})
            return answer.status_code, answer.json()["error"]["code"]

        waiting = [clients.submit(ask) for _ in range(3)]
        eventually(lambda: sum(each.name == "dspark-hub" for each in enumerate_threads()) == 3)
        assert (429, "queue_full") == ask()
        assert [(504, "request_timeout")] * 3 == [each.result() for each in waiting]
        # The threads wait still, and count as long as they do.
        assert (429, "queue_full") == ask()
        released.set()
        eventually(lambda: ask()[0] != 429)


def test_a_repo_beside_a_config_is_refused(server: Served) -> None:
    """Whichever of the two were taken, the other would be ignored."""
    body = {"architectures": ["Qwen3DSparkModel"], "checkpoint": "a/b"}

    answer = server.http.post("/v1/route", json=body)

    assert 400 == answer.status_code
    error = answer.json()["error"]
    assert ("invalid_value", "checkpoint") == (error["code"], error["param"])
    assert "the other keys are a config: send one of the two" in error["message"]
