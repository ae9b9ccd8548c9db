from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import errors

from dspark.errors import Unreadable
from dspark.hub import fetch_config, replay
from dspark.strict_json import LARGEST_CONFIG
from tests.support.hub import COMMIT, Hub, serving

CONFIG = b'{"architectures": ["Qwen3DSparkModel"]}'
REPO = "owner/name"

# huggingface_hub reads its settings when it is imported, so each case is a process of its own.
# Its waits between retries are skipped; it prints what came back, or the rule and its values.
FETCH = """
import sys, time
time.sleep = lambda seconds: None
from dspark.errors import Unreadable
from dspark.source import read_source
try:
    sys.stdout.buffer.write(read_source(sys.argv[1]).data)
except Unreadable as problem:
    print(problem.rule_name, problem.values)
"""

RAISED = """
import sys, time
time.sleep = lambda seconds: None
from huggingface_hub import hf_hub_download, logging
logging.set_verbosity(60)
try:
    hf_hub_download(sys.argv[1], "config.json")
except Exception as error:
    print(type(error).__name__, type(error.__cause__).__name__)
"""


@pytest.fixture
def hub() -> Iterator[Hub]:
    with serving() as hub:
        hub.configs[REPO, "main"] = CONFIG
        yield hub


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def environment(hub: Hub, home: Path, **settings: str) -> dict[str, str]:
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("HF_", "HUGGING_FACE_")) and not name.lower().endswith("_proxy")
    }
    return {**kept, "HF_ENDPOINT": hub.endpoint, "HF_HOME": str(home), **settings}


def run(code: str, source: str, settings: Mapping[str, str], cwd: Path) -> str:
    path = os.pathsep.join(entry for entry in sys.path if entry)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code, source],
        env={**settings, "PYTHONPATH": path},
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (0, "") == (done.returncode, done.stderr)
    return done.stdout.rstrip("\n")


def fetched(hub: Hub, home: Path, source: str = REPO, **settings: str) -> str:
    return run(FETCH, source, environment(hub, home, **settings), home.parent)


def test_first_fetch_asks_for_the_config_and_nothing_else(hub: Hub, home: Path) -> None:
    assert CONFIG.decode() == fetched(hub, home)
    path = f"/{REPO}/resolve/main/config.json"
    assert [("HEAD", path), ("GET", path)] == [(r.method, r.path) for r in hub.requests]
    assert [None, None] == [r.authorization for r in hub.requests]
    assert not any("dspark" in r.user_agent or "agent" in r.user_agent for r in hub.requests)


def test_cached_config_needs_no_hub(hub: Hub, home: Path) -> None:
    fetched(hub, home)
    hub.requests.clear()
    assert CONFIG.decode() == fetched(hub, home, HF_HUB_OFFLINE="1")
    assert [] == hub.requests
    assert CONFIG.decode() == fetched(hub, home)
    assert ["HEAD"] == [r.method for r in hub.requests]
    hub.requests.clear()
    assert CONFIG.decode() == fetched(hub, home, f"{REPO}@{COMMIT}")
    assert [] == hub.requests


def test_cache_that_was_fetched_is_a_local_source_too(hub: Hub, home: Path) -> None:
    fetched(hub, home)
    hub.requests.clear()
    cached = home / "hub" / "models--owner--name"
    assert CONFIG.decode() == fetched(hub, home, str(cached))
    assert CONFIG.decode() == fetched(hub, home, str(cached / "snapshots" / COMMIT))
    assert [] == hub.requests


def test_offline_without_a_cache(hub: Hub, home: Path) -> None:
    reason = "offline mode is on, and the config is not in the cache"
    assert f"hub-unreachable {{'reason': '{reason}'}}" == fetched(hub, home, HF_HUB_OFFLINE="1")
    assert [] == hub.requests


def test_token_is_sent_to_the_hub(hub: Hub, home: Path) -> None:
    hub.token = "hf_secret"
    assert "repo-not-found {'repo': 'owner/name'}" == fetched(hub, home)
    assert "repo-not-found {'repo': 'owner/name'}" == fetched(hub, home, HF_TOKEN="hf_other")
    hub.requests.clear()
    assert CONFIG.decode() == fetched(hub, home, HF_TOKEN="hf_secret")
    assert ["Bearer hf_secret"] * 2 == [r.authorization for r in hub.requests]


def test_revision(hub: Hub, home: Path) -> None:
    hub.configs[REPO, "refs%2Fpr%2F1"] = b'{"revised": true}'
    assert '{"revised": true}' == fetched(hub, home, f"{REPO}@refs/pr/1")
    expected = "revision-not-found {'repo': 'owner/name', 'revision': 'v9'}"
    assert expected == fetched(hub, home, f"{REPO}@v9")


def test_unknown_repo(hub: Hub, home: Path) -> None:
    assert "repo-not-found {'repo': 'owner/other'}" == fetched(hub, home, "owner/other")
    assert ["HEAD"] == [r.method for r in hub.requests]


@pytest.mark.parametrize(
    ("status", "error", "expected"),
    [
        (403, "GatedRepo", "repo-gated {'repo': 'owner/name'}"),
        (404, "EntryNotFound", "config-missing {}"),
        (401, None, "repo-not-found {'repo': 'owner/name'}"),
        (500, None, "hub-unreachable {'reason': 'it answers HTTP 500'}"),
        (404, None, "hub-unreachable {'reason': 'it answers HTTP 404'}"),
    ],
)
def test_refusals_of_the_hub(
    hub: Hub, home: Path, status: int, error: str | None, expected: str
) -> None:
    hub.refusals[REPO] = (status, error)
    assert expected == fetched(hub, home)
    # A server that fails is asked again, by huggingface_hub, a bounded number of times.
    assert len(hub.requests) <= (7 if status == 500 else 1)
    assert {f"/{REPO}/resolve/main/config.json"} == {r.path for r in hub.requests}


def test_a_cached_config_outlives_a_failing_hub(hub: Hub, home: Path) -> None:
    fetched(hub, home)
    hub.refusals[REPO] = (503, None)
    assert CONFIG.decode() == fetched(hub, home)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"HF_ENDPOINT": "http://127.0.0.1:9"}, "the connection fails"),
        ({"HF_ENDPOINT": "somewhere"}, "the endpoint is not a URL"),
        ({"HTTP_PROXY": "http://127.0.0.1:9"}, "the connection fails"),
        ({"HTTP_PROXY": "what://x"}, "a setting of its endpoint, proxy or token is not valid"),
    ],
)
def test_no_way_to_the_hub(hub: Hub, home: Path, settings: dict[str, str], reason: str) -> None:
    assert f"hub-unreachable {{'reason': '{reason}'}}" == fetched(hub, home, **settings)
    assert [] == hub.requests


def test_something_else_answers(hub: Hub, home: Path) -> None:
    hub.refusals[REPO] = (200, None)  # neither ETag nor commit
    expected = "hub-unreachable {'reason': 'the endpoint does not answer as a hub does'}"
    assert expected == fetched(hub, home)


def test_cache_that_cannot_be_written(hub: Hub, home: Path) -> None:
    home.write_bytes(b"")
    assert "config-unreadable {'reason': 'the hub cache fails: not a directory'}" == fetched(
        hub, home
    )


def test_a_terminal_sees_no_progress_and_no_log(hub: Hub, home: Path) -> None:
    hub.headers["X-HF-Warning"] = "topic; a warning for the terminal"
    ours, theirs = pty.openpty()
    done = subprocess.run(
        [sys.executable, "-c", FETCH, REPO],
        env={**environment(hub, home, TQDM_POSITION="-1"), "PYTHONPATH": os.pathsep.join(sys.path)},
        cwd=home.parent,
        stdout=subprocess.PIPE,
        stderr=theirs,
        timeout=60,
        check=False,
    )
    os.set_blocking(ours, False)
    os.close(theirs)
    try:
        seen = os.read(ours, 10_000)
    except OSError:  # what a terminal nobody wrote to reads as
        seen = b""
    os.close(ours)
    assert (CONFIG, b"") == (done.stdout, seen)


ANSWERS = [
    (404, "RepoNotFound"),
    (404, "RevisionNotFound"),
    (404, "EntryNotFound"),
    (404, None),
    (401, None),
    (401, "RepoNotFound"),
    (401, "GatedRepo"),
    (403, "GatedRepo"),
    (403, None),
    (429, None),
    (500, None),
    (503, None),
]

RULES = {
    (404, "RepoNotFound"): "repo-not-found",
    (404, "RevisionNotFound"): "revision-not-found",
    (404, "EntryNotFound"): "config-missing",
    (401, None): "repo-not-found",
    (401, "RepoNotFound"): "repo-not-found",
    (401, "GatedRepo"): "repo-gated",
    (403, "GatedRepo"): "repo-gated",
    (403, None): "repo-gated",
}


def refusal(download: Any, repo_id: str = REPO) -> tuple[str, dict[str, object]]:
    with pytest.raises(Unreadable) as caught:
        fetch_config(repo_id, None, download)
    assert caught.value.__suppress_context__
    return caught.value.rule_name, caught.value.values


@pytest.mark.parametrize(("status", "error"), ANSWERS)
def test_each_answer_has_its_rule(status: int, error: str | None) -> None:
    rule, values = refusal(replay(status, error))
    assert RULES.get((status, error), "hub-unreachable") == rule
    if rule == "hub-unreachable":
        assert {"reason": f"it answers HTTP {status}"} == values


def test_no_connection_has_its_rule() -> None:
    expected = ("hub-unreachable", {"reason": "the connection fails"})
    assert expected == refusal(replay(None, None))


@pytest.mark.parametrize(("status", "error"), [(200, None), (302, None), (600, None), (None, "X")])
def test_only_failures_are_replayed(status: int | None, error: str | None) -> None:
    with pytest.raises(ValueError, match="status"):
        replay(status, error)


# On a bare 401, huggingface_hub blames the repo only behind https://, which no loopback hub has.
COMPARABLE = [answer for answer in ANSWERS if answer != (401, None)]


@pytest.mark.parametrize(("status", "error"), [*COMPARABLE, (None, None)])
def test_replay_raises_what_the_library_raises(
    hub: Hub, home: Path, status: int | None, error: str | None
) -> None:
    settings = environment(hub, home)
    if status is None:
        settings["HF_ENDPOINT"] = "http://127.0.0.1:9"
    else:
        hub.refusals[REPO] = (status, error)
    expected = run(RAISED, REPO, settings, home.parent)
    with pytest.raises((errors.HfHubHTTPError, errors.LocalEntryNotFoundError)) as caught:
        replay(status, error)(REPO, "config.json", revision=None)
    found = caught.value
    assert expected == f"{type(found).__name__} {type(found.__cause__).__name__}"


def failing(error: Exception) -> Any:
    def download(*_: object, **__: object) -> str:
        raise error

    return download


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("ReadTimeout", "it does not answer in time"),
        ("ConnectTimeout", "it does not answer in time"),
        ("ProxyError", "the proxy fails"),
        ("RemoteProtocolError", "the connection fails"),
    ],
)
def test_transport_failures(name: str, reason: str) -> None:
    import httpx2

    error = getattr(httpx2, name)("a long story")
    assert ("hub-unreachable", {"reason": reason}) == refusal(failing(error))


def test_name_that_no_repo_can_have() -> None:
    expected = ("not-a-checkpoint", {"found": "no repo can have this name"})
    assert expected == refusal(failing(errors.HFValidationError("no")), "a--b/c")


def test_full_disk() -> None:
    expected = {"reason": "the hub cache fails: no space left on device"}
    error = OSError(28, os.strerror(28))
    assert ("config-unreadable", expected) == refusal(failing(error))


def test_a_mistake_of_ours_is_not_dressed_up() -> None:
    with pytest.raises(TypeError, match="ours"):
        fetch_config(REPO, None, failing(TypeError("ours")))


def test_no_more_is_read_than_shows_that_it_is_too_much(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_bytes(b" " * (LARGEST_CONFIG + 1000))
    assert LARGEST_CONFIG + 1 == len(fetch_config(REPO, None, lambda *_, **__: str(file)))


def test_what_was_fetched_is_json_for_the_reader(hub: Hub, home: Path) -> None:
    assert {"architectures": ["Qwen3DSparkModel"]} == json.loads(fetched(hub, home))
