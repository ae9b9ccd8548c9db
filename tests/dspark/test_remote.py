from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import tracemalloc
from typing import TYPE_CHECKING

import huggingface_hub
import numpy as np
import pytest
from huggingface_hub import constants

from dspark.errors import Unreadable
from dspark.remote import index_remote
from dspark.tensors import index_checkpoint
from tests.support.range_hub import COMMIT, REPO, RangeHub, serving
from tests.support.safetensors_files import (
    INDEX,
    draft_shapes,
    encoded,
    write_index,
    write_shards,
    write_sparse,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from dspark.tensors import Tensors

DRAFT = draft_shapes(5, 4096, 12288, 32, 8, 128, 151936)
# Telemetry would ask the hub for a list of its own.
QUIET = {"HF_HUB_DISABLE_TELEMETRY": "1"}
SMALL = {"a": (4, 4), "b": (2,)}


@pytest.fixture(autouse=True)
def _own_client(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A client that knows no proxy, no saved login and no other test's connections."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")
    monkeypatch.setenv("HF_TOKEN", "hf_saved")
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_TELEMETRY", True)
    huggingface_hub.close_session()
    yield
    huggingface_hub.close_session()


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[RangeHub]:
    folder = tmp_path / "repo"
    folder.mkdir()
    with serving(folder) as hub:
        yield hub


def ask(hub: RangeHub, revision: str | None = None, token: str | bool | None = False) -> Tensors:
    return index_remote(REPO, revision, endpoint=hub.endpoint, token=token)


def refusal_of(hub: RangeHub) -> object:
    with pytest.raises(Unreadable) as refusal:
        ask(hub)
    assert refusal.value.rule_name == "hub-unreachable"
    assert refusal.value.values["repo_id"] == REPO
    return refusal.value.values["reason"]


def rules(found: Tensors) -> list[str]:
    return [finding.rule_name for finding in found.findings]


# What is fetched


def test_a_draft_of_gigabytes_costs_kilobytes(hub: RangeHub) -> None:
    size = write_sparse(hub.folder / "model.safetensors", DRAFT)
    (hub.folder / "config.json").write_text("{}")
    assert size > 2.4 * 2**30
    found = ask(hub)
    assert found == index_checkpoint(hub.folder)
    assert found.findings == ()
    assert found.files == (("model.safetensors", size),)
    assert hub.sent < 200_000
    assert len(hub.requests) == 2


def test_a_header_longer_than_the_head_costs_one_request_more(hub: RangeHub) -> None:
    shapes = {f"layers.{i}.a_rather_long_name_for_a_tensor.weight": (1,) for i in range(1500)}
    write_sparse(hub.folder / "model.safetensors", shapes)
    found = ask(hub)
    assert found == index_checkpoint(hub.folder)
    assert found.header_bytes > 65536
    ranges = [request.range for request in hub.requests if request.range]
    assert ranges == ["bytes=0-65535", f"bytes=65536-{found.header_bytes - 1}"]


def test_shards_are_fetched_by_their_index(hub: RangeHub) -> None:
    shards = {f"s{i}.safetensors": {f"t{i}": np.full(3, i)} for i in range(20)}
    write_shards(hub.folder, shards)
    (hub.folder / "stray.safetensors").write_bytes(b"never asked for")
    found = ask(hub)
    assert found == index_checkpoint(hub.folder)
    assert len(found.tensors) == 20
    assert [file for file, _ in found.files] == list(shards)
    assert not any("stray" in request.path for request in hub.requests)


def test_all_requests_name_the_commit_the_revision_means(hub: RangeHub) -> None:
    write_sparse(hub.folder / "model.safetensors", SMALL)
    ask(hub, revision="refs/pr/3")
    listing, file = hub.requests
    assert listing.path.startswith(f"/api/models/{REPO}/revision/refs%2Fpr%2F3?")
    assert file.path == f"/{REPO}/resolve/{COMMIT}/model.safetensors"


def test_an_endpoint_may_end_in_a_slash(hub: RangeHub) -> None:
    write_sparse(hub.folder / "model.safetensors", SMALL)
    hub.endpoint += "/"
    assert rules(ask(hub)) == []
    assert not any(request.path.startswith("//") for request in hub.requests)


def test_headers_are_fetched_side_by_side(hub: RangeHub) -> None:
    write_shards(hub.folder, {f"s{i}.safetensors": {f"t{i}": np.zeros(1)} for i in range(2)})
    hub.together = threading.Barrier(2)
    assert rules(ask(hub)) == []


def test_ranges_are_asked_for_uncompressed(hub: RangeHub) -> None:
    write_sparse(hub.folder / "model.safetensors", SMALL)
    ask(hub)
    assert hub.requests[-1].encoding == "identity"


# What is refused


def test_remote_files_get_the_findings_of_local_ones(hub: RangeHub) -> None:
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"
    (hub.folder / "lfs.safetensors").write_bytes(pointer)
    (hub.folder / "empty.safetensors").write_bytes(b"")
    (hub.folder / "seven.safetensors").write_bytes(bytes(7))
    (hub.folder / "huge.safetensors").write_bytes((2**63).to_bytes(8, "little") + bytes(100))
    size = write_sparse(hub.folder / "short.safetensors", DRAFT)
    os.truncate(hub.folder / "short.safetensors", size - 8)
    names = ["lfs", "empty", "seven", "huge", "short", "gone"]
    write_index(hub.folder, {f"t.{name}": f"{name}.safetensors" for name in names})
    found = ask(hub)
    assert found == index_checkpoint(hub.folder)
    assert rules(found) == [
        "shard-missing",
        "shard-is-lfs-pointer",
        "shard-corrupt",
        "shard-corrupt",
        "shard-corrupt",
        "shard-truncated",
        "tensor-missing",
    ]
    assert not any("gone" in request.path for request in hub.requests), "the listing knows"


def test_a_repository_without_weights_has_none(hub: RangeHub) -> None:
    (hub.folder / "sub").mkdir()
    write_sparse(hub.folder / "sub" / "model.safetensors", SMALL)
    (finding,) = ask(hub).findings
    assert (finding.rule_name, finding.values["source"]) == ("weights-missing", REPO)


def test_a_server_that_ignores_ranges_is_refused_before_its_gigabytes(hub: RangeHub) -> None:
    size = write_sparse(hub.folder / "model.safetensors", DRAFT)
    hub.fault = "ignores ranges"
    tracemalloc.start()
    try:
        assert refusal_of(hub) == "it ignores range requests and sends whole files"
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert hub.sent < size / 20, "what the sockets buffer, and no more"
    assert peak < 64 * 2**20


@pytest.mark.parametrize("fault", ["ignores ranges", "whole when covered"])
def test_all_of_a_small_file_answers_a_range_that_covers_it(hub: RangeHub, fault: str) -> None:
    write_sparse(hub.folder / "model.safetensors", SMALL)
    hub.fault = fault
    assert ask(hub) == index_checkpoint(hub.folder)


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("another range", "it sends another range than it was asked for"),
        ("less than asked", "it sends another range than it was asked for"),
        ("unknown size", "it does not say which range it sends"),
        ("no range", "it does not say which range it sends"),
        ("compressed", "it compresses what must be exact bytes"),
        ("short body", "its answer has another length than it says"),
        ("long body", "its answer has another length than it says"),
    ],
)
def test_an_answer_that_is_not_the_range_is_refused(hub: RangeHub, fault: str, reason: str) -> None:
    write_sparse(hub.folder / "model.safetensors", SMALL)
    hub.fault = fault
    assert refusal_of(hub) == reason


def test_a_head_in_place_of_a_later_range_is_refused(hub: RangeHub) -> None:
    write_sparse(hub.folder / "model.safetensors", {f"t{i:050}": (1,) for i in range(1500)})
    hub.fault = "head instead"
    assert refusal_of(hub) == "it ignores range requests and sends whole files"


def test_an_answer_without_end_is_cut(hub: RangeHub) -> None:
    write_sparse(hub.folder / "model.safetensors", SMALL)
    hub.fault = "endless body"
    assert refusal_of(hub) == "its answer has another length than it says"
    assert hub.sent < 2**27


def test_a_file_that_changes_between_requests_is_refused(hub: RangeHub) -> None:
    write_sparse(hub.folder / "model.safetensors", {f"t{i:050}": (1,) for i in range(1500)})
    hub.fault = "grows"
    (finding,) = ask(hub).findings
    assert finding.rule_name == "shard-unreadable"
    assert finding.values["reason"] == "it changed while it was read"


@pytest.mark.parametrize("status", [401, 403, 429, 500, 503])
def test_a_status_is_named(hub: RangeHub, status: int) -> None:
    write_sparse(hub.folder / "model.safetensors", SMALL)
    hub.status = status
    assert refusal_of(hub) == f"HTTP {status} for `model.safetensors`"


def test_the_first_refusal_ends_the_fetching(hub: RangeHub) -> None:
    shards = {f"s{i}.safetensors": {f"t{i}": np.zeros(1)} for i in range(150)}
    write_shards(hub.folder, shards)
    hub.fault = "unknown size in shards"
    assert refusal_of(hub) == "it does not say which range it sends"
    assert len(hub.requests) < 75


@pytest.mark.parametrize("status", [401, 404, 500])
def test_a_status_of_the_listing_is_named(hub: RangeHub, status: int) -> None:
    hub.listing_status = status
    assert refusal_of(hub) == f"HTTP {status}"


def test_a_listed_file_that_is_gone_is_missing(hub: RangeHub) -> None:
    write_sparse(hub.folder / "model.safetensors", SMALL)
    hub.status = 404
    (finding,) = ask(hub).findings
    assert (finding.rule_name, finding.values) == (
        "shard-missing",
        {"file": "model.safetensors", "listed_in": REPO},
    )


@pytest.mark.parametrize(
    ("listing", "reason"),
    [
        (b"<html>please log in</html>", "it does not answer as a hub does"),
        (b"[]", "it does not answer as a hub does"),
        (b"{}", "it does not answer as a hub does"),
        (b'{"id": "a/b", "siblings": [1]}', "it does not answer as a hub does"),
        (b'{"id": "a/b", "sha": 1, "siblings": []}', "it does not answer as a hub does"),
        (
            b'{"id": "a/b", "sha": "1", "siblings": [{"rfilename": 1}]}',
            "it does not answer as a hub does",
        ),
        (b'{"id": "a/b", "lastModified": "soon"}', "it does not answer as a hub does"),
        (b'{"id": "a/b", "lastModified": 5}', "it does not answer as a hub does"),
        (b'{"id": "a/b", "sha": "1"}', "it does not list the files of a commit"),
        (b'{"id": "a/b", "siblings": []}', "it does not list the files of a commit"),
    ],
)
def test_what_is_no_hub_is_refused(hub: RangeHub, listing: bytes, reason: str) -> None:
    hub.listing = listing
    assert refusal_of(hub) == reason


def test_no_server_is_refused(hub: RangeHub) -> None:
    hub.endpoint = "http://127.0.0.1:1"
    assert "refused" in str(refusal_of(hub)).lower()


@pytest.mark.parametrize("endpoint", ["ftp://127.0.0.1", "http://127.0.0.1:x", "nonsense"])
def test_an_endpoint_that_is_no_address_is_refused(hub: RangeHub, endpoint: str) -> None:
    hub.endpoint = endpoint
    assert refusal_of(hub)


def test_a_name_that_is_no_repository_is_refused(hub: RangeHub) -> None:
    with pytest.raises(Unreadable) as refusal:
        index_remote("a/b/c", None, endpoint=hub.endpoint, token=False)
    assert refusal.value.values["reason"] == "this is not the name of a repository"
    assert hub.requests == []


# Tokens


def test_a_token_reaches_the_hub_and_no_other_host(hub: RangeHub) -> None:
    write_sparse(hub.folder / "model.safetensors", SMALL)
    with serving(hub.folder, "localhost") as storage:
        hub.redirect_to = storage.endpoint
        assert rules(ask(hub, token="hf_secret")) == []
        assert [request.authorization for request in hub.requests] == ["Bearer hf_secret"] * 2
        assert [request.authorization for request in storage.requests] == [None]
        assert storage.requests[0].range == "bytes=0-65535"


def test_the_saved_token_is_used_unless_forbidden(hub: RangeHub) -> None:
    write_sparse(hub.folder / "model.safetensors", SMALL)
    ask(hub, token=None)
    assert {request.authorization for request in hub.requests} == {"Bearer hf_saved"}
    hub.requests.clear()
    ask(hub, token=False)
    assert {request.authorization for request in hub.requests} == {None}


def test_a_demanded_token_that_is_not_saved_is_refused(
    hub: RangeHub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("HF_TOKEN")
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "none"))
    with pytest.raises(Unreadable) as refusal:
        ask(hub, token=True)
    assert refusal.value.values["reason"] == "a token is demanded and none is saved"


def test_the_environment_names_the_hub(hub: RangeHub) -> None:
    write_sparse(hub.folder / "model.safetensors", SMALL)
    script = (
        "from dspark.remote import index_remote\n"
        f"print(sorted(index_remote({REPO!r}, None).tensors))"
    )
    run = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "HF_ENDPOINT": hub.endpoint, "HF_TOKEN": "hf_env", **QUIET},
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout == "['a', 'b']\n"
    assert {request.authorization for request in hub.requests} == {"Bearer hf_env"}


# Offline


@pytest.fixture
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An offline hub cache with the repository in it; returns its snapshot."""
    cache = tmp_path / "cache"
    repo = cache / f"models--{REPO.replace('/', '--')}"
    snapshot = repo / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    (repo / "refs").mkdir()
    (repo / "refs" / "main").write_text(COMMIT)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    return snapshot


@pytest.mark.parametrize("revision", [None, "main", COMMIT])
def test_offline_the_cache_answers(offline: Path, hub: RangeHub, revision: str | None) -> None:
    write_sparse(offline / "draft.safetensors", SMALL)
    (offline / "config.json").write_text("{}")
    assert ask(hub, revision) == index_checkpoint(offline)
    assert hub.requests == []


def test_offline_a_partial_download_is_seen(offline: Path, hub: RangeHub) -> None:
    write_index(offline, {"a": "one.safetensors"})
    assert rules(ask(hub)) == ["shard-missing"]


@pytest.mark.parametrize("file", ["config.json", ""])
def test_offline_without_weights_in_the_cache_is_refused(
    offline: Path, hub: RangeHub, file: str
) -> None:
    if file:
        (offline / file).write_text(json.dumps({}))
    assert refusal_of(hub) == "offline mode is on, and the cache has no weights of it"


def test_offline_another_revision_is_not_taken(offline: Path, hub: RangeHub) -> None:
    write_sparse(offline / "model.safetensors", SMALL)
    with pytest.raises(Unreadable):
        ask(hub, revision="v2")


def test_the_fixture_files_are_what_they_claim(hub: RangeHub) -> None:
    write_sparse(hub.folder / "model.safetensors", SMALL)
    data = (hub.folder / "model.safetensors").read_bytes()
    assert data == encoded(data[8 : 8 + int.from_bytes(data[:8], "little")], bytes(36))
    assert INDEX == "model.safetensors.index.json"
