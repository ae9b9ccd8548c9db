from __future__ import annotations

import io
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from dspark.errors import Unreadable
from dspark.hub import replay
from dspark.messages import Template
from dspark.source import Source, read_source
from dspark.strict_json import LARGEST_CONFIG, parse_config

CONFIG = b'{"architectures": ["Qwen3DSparkModel"]}'
GGUF = b"GGUF\x03\x00\x00\x00"
NOTHING = {"found": "no file or folder has this name"}


def no_download(*_: object, **__: object) -> str:
    raise AssertionError("a local source was asked of the hub")


def refusal(source: Any, **seams: Any) -> tuple[str, dict[str, object]]:
    with pytest.raises(Unreadable) as caught:
        read_source(source, **{"download": no_download, **seams})
    return caught.value.rule_name, caught.value.values


def read(source: str | os.PathLike[str]) -> Source:
    return read_source(source, download=no_download)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A checkpoint folder with a config, weights and a few other files."""
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    (folder / "config.json").write_bytes(CONFIG)
    for name in ("model.safetensors", "model-00001-of-00002.safetensors", "tokenizer.bin"):
        (folder / name).write_bytes(b"")
    (folder / "model.safetensors.index.json").write_bytes(b'{"weight_map": {}}')
    return folder


@pytest.mark.parametrize(
    "name",
    [
        "",
        "config.json",
        "model.safetensors",
        "model-00001-of-00002.safetensors",
        "model.safetensors.index.json",
    ],
)
@pytest.mark.parametrize("kind", [str, Path])
def test_folder_config_weights_and_index_are_one_checkpoint(
    checkpoint: Path, name: str, kind: Callable[[Path], str | Path]
) -> None:
    assert Source("config", CONFIG, checkpoint) == read(kind(checkpoint / name))


@pytest.mark.parametrize(
    "name",
    [
        "eagle3",
        "my-eagle-draft",
        "mtp",
        "with space",
        "日本語",
        "a'b\"c",
        "-",
        "x.gguf",
        "x.json",
        "model.safetensors",
        "models--owner--name",
        "refs",
        "\udcff",
        "\x1b[31m",
        "a" * 255,
    ],
)
def test_a_folders_name_does_not_count(
    checkpoint: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved = checkpoint.rename(checkpoint.parent / name)
    assert Source("config", CONFIG, moved) == read(f"{moved}/")
    monkeypatch.chdir(moved.parent)
    assert Source("config", CONFIG, Path(name)) == read(f"./{name}")
    assert Source("config", CONFIG, Path(name)) == read(Path(name))


def test_any_json_file_is_a_config(checkpoint: Path) -> None:
    for name in ("draft.json", "Config.JSON", "safetensors.json"):
        (checkpoint / name).write_bytes(b"{}")
        assert Source("config", b"{}", checkpoint) == read(checkpoint / name)


def test_links_are_followed(checkpoint: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(checkpoint)
    assert Source("config", CONFIG, tmp_path / "link") == read(tmp_path / "link")


def test_the_current_folder(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(checkpoint)
    expected = Source("config", CONFIG, Path())
    assert [expected] * 3 == [read("."), read("config.json"), read(Path())]


@pytest.mark.parametrize("name", ["draft.gguf", "draft.GGUF", "draft", "draft.bin", "draft.json"])
def test_gguf_file(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(GGUF)
    assert Source("gguf", b"", tmp_path) == read(tmp_path / name)


def test_a_gguf_is_known_by_its_magic_and_not_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "draft.gguf").write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    expected = ("not-a-checkpoint", {"found": "it is a file of another kind"})
    assert expected == refusal(tmp_path / "draft.gguf")
    assert ("config-missing", {}) == refusal(tmp_path)


def test_gguf_folder(tmp_path: Path) -> None:
    (tmp_path / "draft-q4.gguf").write_bytes(GGUF)
    assert Source("gguf", b"", tmp_path) == read(tmp_path)


def test_a_config_beside_a_gguf_file_decides(checkpoint: Path) -> None:
    (checkpoint / "draft.gguf").write_bytes(GGUF)
    assert Source("config", CONFIG, checkpoint) == read(checkpoint)


def test_a_folder_called_like_a_gguf_file_is_none(tmp_path: Path) -> None:
    (tmp_path / "draft.gguf").mkdir()
    assert ("config-missing", {}) == refusal(tmp_path)


@pytest.mark.parametrize("name", ["", "model.safetensors", "model.safetensors.index.json"])
def test_config_missing(checkpoint: Path, name: str) -> None:
    (checkpoint / "config.json").unlink()
    assert ("config-missing", {}) == refusal(checkpoint / name)


@pytest.fixture
def cached(tmp_path: Path) -> Path:
    """A repo's folder as huggingface_hub leaves it: refs, and snapshots of links into blobs."""
    repo = tmp_path / "models--owner--name"
    for commit in ("aaaa", "bbbb"):
        (repo / "blobs").mkdir(parents=True, exist_ok=True)
        (repo / "blobs" / f"blob-{commit}").write_bytes(CONFIG + commit.encode())
        (repo / "snapshots" / commit).mkdir(parents=True)
        (repo / "snapshots" / commit / "config.json").symlink_to(f"../../blobs/blob-{commit}")
    (repo / "refs").mkdir()
    (repo / "refs" / "main").write_text("bbbb")
    return repo


def test_cache_snapshot(cached: Path) -> None:
    folder = cached / "snapshots" / "aaaa"
    expected = Source("config", CONFIG + b"aaaa", folder)
    assert [expected, expected] == [read(folder), read(folder / "config.json")]


def test_cached_repo_is_what_refs_main_names(cached: Path) -> None:
    assert Source("config", CONFIG + b"bbbb", cached / "snapshots" / "bbbb") == read(cached)


def test_cached_repo_without_refs_is_its_only_snapshot(cached: Path) -> None:
    (cached / "refs" / "main").unlink()
    assert ("config-missing", {}) == refusal(cached)
    (cached / "snapshots" / "bbbb").rename(cached / "elsewhere")
    (cached / "snapshots" / ".DS_Store").write_bytes(b"")
    assert Source("config", CONFIG + b"aaaa", cached / "snapshots" / "aaaa") == read(cached)


@pytest.mark.parametrize("commit", ["cccc", "../..", "../snapshots/aaaa", "/", "", "é", "a" * 200])
def test_refs_main_is_believed_or_nothing_is(cached: Path, commit: str) -> None:
    (cached / "refs" / "main").write_text(commit)
    assert ("config-missing", {}) == refusal(cached)


def test_cached_gguf_repo(cached: Path) -> None:
    folder = cached / "snapshots" / "bbbb"
    (folder / "config.json").unlink()
    (folder / "draft.gguf").write_bytes(GGUF)
    assert Source("gguf", b"", folder) == read(cached)


def unreadable(reason: str) -> tuple[str, dict[str, object]]:
    return "config-unreadable", {"reason": reason}


@pytest.fixture(params=["folder", "file"])
def as_source(request: pytest.FixtureRequest) -> Callable[[Path], Path]:
    """A config.json is named by its folder or by itself."""
    return lambda config: config.parent if request.param == "folder" else config


def test_dangling_link(tmp_path: Path, as_source: Callable[[Path], Path]) -> None:
    config = tmp_path / "config.json"
    config.symlink_to("../blobs/gone")
    assert unreadable("it is a link to nothing") == refusal(as_source(config))


def test_link_loop(tmp_path: Path, as_source: Callable[[Path], Path]) -> None:
    config = tmp_path / "config.json"
    config.symlink_to("config.json")
    assert unreadable("too many levels of symbolic links") == refusal(as_source(config))


def test_config_is_a_folder(tmp_path: Path) -> None:
    (tmp_path / "config.json").mkdir()
    assert unreadable("it is a folder") == refusal(tmp_path)


def test_pipe_does_not_hang(tmp_path: Path, as_source: Callable[[Path], Path]) -> None:
    config = tmp_path / "config.json"
    os.mkfifo(config)
    assert unreadable("it is not a regular file") == refusal(as_source(config))


@pytest.mark.parametrize("name", ["draft.gguf", "model.safetensors", "draft"])
def test_pipe_of_any_name_does_not_hang(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / name)
    assert unreadable("it is not a regular file") == refusal(tmp_path / name)


def test_device_does_not_hang(tmp_path: Path) -> None:
    (tmp_path / "config.json").symlink_to("/dev/zero")
    expected = unreadable("it is not a regular file")
    assert [expected] * 2 == [refusal(tmp_path), refusal("/dev/zero")]


def test_socket_does_not_hang(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # a socket's address is short
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("config.json")
        assert unreadable("it is not a regular file") == refusal(tmp_path)


def test_a_file_that_turns_into_a_pipe_does_not_hang(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = os.open

    def replace_then_open(path: Path, flags: int) -> int:
        path.unlink()
        os.mkfifo(path)
        return opened(path, flags)

    monkeypatch.setattr(os, "open", replace_then_open)
    assert unreadable("it is not a regular file") == refusal(checkpoint)


@pytest.mark.parametrize("place", ["config.json", "."])
def test_permission_denied(checkpoint: Path, place: str) -> None:
    (checkpoint / place).chmod(0)
    code = (
        "import os, sys\n"
        "from dspark.source import read_source\n"
        "if os.getuid() == 0: os.setresuid(65534, 65534, 65534)\n"
        "try: print(read_source(sys.argv[1]))\n"
        "except Exception as error: print(error)\n"
    )
    for parent in (checkpoint.parent, checkpoint.parent.parent, checkpoint.parent.parent.parent):
        parent.chmod(0o755)
    try:
        out = python(code, str(checkpoint))
    finally:
        (checkpoint / place).chmod(0o755)
    assert f"{unreadable('permission denied')}\n" == out


def python(code: str, *arguments: str) -> str:
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (0, "") == (done.returncode, done.stderr)
    return done.stdout


@pytest.mark.parametrize("name", ["weights.bin", "model.pt", "notes.txt", "config", "config.yaml"])
def test_other_files_are_no_checkpoints(checkpoint: Path, name: str) -> None:
    (checkpoint / name).write_bytes(CONFIG)
    expected = ("not-a-checkpoint", {"found": "it is a file of another kind"})
    assert expected == refusal(checkpoint / name)


@pytest.mark.parametrize("source", ["a\0b", "owner/na\0me", "\ud800"])
def test_names_no_file_system_accepts(source: str) -> None:
    assert ("not-a-checkpoint", {"found": "no file system accepts this name"}) == refusal(source)


NOT_REPOS = [
    "",
    " ",
    "gpt2",
    "gpt2@main",
    "./owner/name",
    "../name",
    "/owner/name",
    "~/name",
    "~owner/name",
    "owner/name/",
    "owner//name",
    "owner/name/config",
    "owner/",
    "/name",
    "owner/na--me",
    "ow--ner/name",
    "owner/na..me",
    "owner/..",
    ".owner/name",
    "owner/.name",
    "owner/name.",
    "owner/-name",
    "owner/name-",
    "owner/na me",
    "owner/na\nme",
    "owner/name\n",
    "owner/日本",
    "owner/name.git",
    "owner\\name",
    "https://huggingface.co/owner/name",
    "owner/name@",
    "owner/name@../x",
    "owner/name@/x",
    "owner/name@a@b",
    "owner/name@a b",
    "owner/" + "n" * 97,
    "o" * 97 + "/name",
    "a/" * 5000,
    "a" * 100_000,
    # Lost files, not repos.
    "owner/config.json",
    "owner/model.safetensors",
    "owner/draft.gguf",
    "owner/pytorch_model.bin",
    "owner/model.PT",
    "owner/notes.txt",
]


@pytest.mark.parametrize("source", NOT_REPOS)
def test_what_is_neither_here_nor_a_repo(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert ("not-a-checkpoint", NOTHING) == refusal(source)


@pytest.mark.parametrize(
    ("source", "repo", "revision"),
    [
        ("owner/name", "owner/name", None),
        ("deepseek-ai/dspark_qwen3_8b_block7", "deepseek-ai/dspark_qwen3_8b_block7", None),
        ("o/n", "o/n", None),
        ("_o/n_", "_o/n_", None),
        ("z-lab/Qwen3.5-4B-DFlash", "z-lab/Qwen3.5-4B-DFlash", None),
        ("owner/name@v1.0", "owner/name", "v1.0"),
        ("owner/name@refs/pr/1", "owner/name", "refs/pr/1"),
        ("o" * 96 + "/" + "n" * 96, "o" * 96 + "/" + "n" * 96, None),
    ],
)
def test_repo_ids(
    source: str, repo: str, revision: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fetched").write_bytes(CONFIG)
    asked: list[object] = []

    def download(repo_id: str, filename: str, *, revision: str | None) -> str:
        asked.append((repo_id, filename, revision))
        return "fetched"

    expected = Source("config", CONFIG, None, (repo, revision))
    assert expected == read_source(source, download=download)
    assert [(repo, "config.json", revision)] == asked


@given(st.from_regex(r"[\w./@ -]{1,12}", fullmatch=True) | st.text(max_size=12))
def test_no_other_name_reaches_the_hub_than_one_it_accepts(source: str) -> None:
    from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]

    def download(repo_id: str, filename: str, *, revision: str | None) -> str:
        validate_repo_id(repo_id)
        assert repo_id.count("/") == 1
        assert revision != ""
        raise Unreadable("asked", filename=filename)

    try:
        found = read_source(source, stdin=io.BytesIO(), download=download)
    except Unreadable as problem:
        if problem.rule_name == "asked":
            assert not Path(source).exists()
    else:
        assert source == "-" or found.folder is not None


def test_a_local_folder_wins_over_a_repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("owner/name").mkdir(parents=True)
    assert ("config-missing", {}) == refusal("owner/name")
    Path("owner/name/config.json").write_bytes(CONFIG)
    assert Source("config", CONFIG, Path("owner/name")) == read("owner/name")


def test_a_path_object_is_never_a_repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert ("not-a-checkpoint", NOTHING) == refusal(Path("owner/name"))


class Stingy(io.RawIOBase):
    """A raw stream that gives one byte less than asked for, and counts what it gave."""

    def __init__(self, data: bytes) -> None:
        self.left = io.BytesIO(data)
        self.given = 0

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        data = self.left.read(max(1, size - 1))
        self.given += len(data)
        return data


def test_standard_input() -> None:
    assert Source("config", CONFIG, None) == read_source("-", stdin=io.BytesIO(CONFIG))
    assert Source("config", b"", None) == read_source("-", stdin=io.BytesIO())
    assert Source("gguf", b"", None) == read_source("-", stdin=io.BytesIO(GGUF))
    assert Source("config", CONFIG, None) == read_source("-", stdin=Stingy(CONFIG))  # type: ignore[arg-type]


def test_real_standard_input() -> None:
    code = "from dspark.source import read_source; print(read_source('-').data.decode())"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, input=CONFIG, capture_output=True, timeout=60, check=False)
    assert (CONFIG + b"\n", b"") == (done.stdout, done.stderr)


def test_no_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    assert unreadable("there is no standard input") == refusal("-")
    closed = io.BytesIO()
    closed.close()
    assert unreadable("standard input is closed") == refusal("-", stdin=closed)


def test_no_more_is_read_than_shows_that_it_is_too_much(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(b" " * (LARGEST_CONFIG + 1000))
    assert LARGEST_CONFIG + 1 == len(read(tmp_path).data)
    stream = Stingy(b" " * (LARGEST_CONFIG + 1000))
    assert LARGEST_CONFIG + 1 == len(read_source("-", stdin=stream).data)  # type: ignore[arg-type]
    assert LARGEST_CONFIG + 1 == stream.given


NETWORK_MODULES = ["huggingface_hub", "socket", "_socket", "ssl", "http.client", "urllib.request"]
NETWORK_MODULES += ["requests", "httpx", "httpx2", "urllib3", "asyncio", "dspark.hub"]


@pytest.mark.parametrize("name", ["", "config.json", "model.safetensors", "tokenizer.bin", "gone"])
def test_local_paths_import_nothing_that_could_reach_a_network(checkpoint: Path, name: str) -> None:
    code = (
        "import json, sys\n"
        "from dspark.source import read_source\n"
        "from dspark.strict_json import parse_config\n"
        "from dspark.errors import Unreadable\n"
        "try: print(parse_config(read_source(sys.argv[1]).data))\n"
        "except Unreadable as problem: print(problem.rule_name)\n"
        "print(json.dumps(sorted(sys.modules)))\n"
    )
    *said, modules = python(code, str(checkpoint / name)).splitlines()
    outcomes = {"tokenizer.bin": "not-a-checkpoint", "gone": "not-a-checkpoint"}
    assert [outcomes.get(name, str(json.loads(CONFIG)))] == said
    assert "dspark.source" in json.loads(modules)
    assert [] == [name for name in NETWORK_MODULES if name in json.loads(modules)]


# rules/messages.yaml: every test in it, played through the reader.


def rules(repository: Path) -> dict[str, dict[str, Any]]:
    table = yaml.safe_load((repository / "rules" / "messages.yaml").read_text(encoding="utf-8"))
    return {rule["name"]: rule for rule in table["rules"].values()}


@pytest.fixture
def outcome(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[dict[str, Any]], tuple[str, dict[str, object]]]:
    """A function from an in-table input to (rule name or nothing, values)."""
    numbers = iter(range(1000))

    def run(given: dict[str, Any]) -> tuple[str, dict[str, object]]:
        place = tmp_path / str(next(numbers))
        place.mkdir()
        monkeypatch.chdir(place)
        ((kind, value),) = given.items()
        try:
            if kind == "hub":
                source = read_source("owner/name", download=replay(**value))
            elif kind == "path":
                source = read_source(value, download=no_download)
            elif kind == "folder":
                for name, text in value.items():
                    (place / name).parent.mkdir(exist_ok=True)
                    (place / name).write_text(text)
                source = read_source(place, download=no_download)
            else:
                text = value[0] * value[1] if kind == "repeat" else value
                data = bytes.fromhex(text) if kind == "hex" else text.encode()
                source = read_source("-", stdin=io.BytesIO(data))
            if source.kind == "config":
                parse_config(source.data)
        except Unreadable as problem:
            return problem.rule_name, problem.values
        return "", {}

    return run


OURS = [
    "config-empty",
    "config-invalid-json",
    "config-duplicate-key",
    "config-not-object",
    "config-not-utf8",
    "config-has-bom",
    "config-not-finite",
    "config-too-deep",
    "config-too-large",
    "config-is-lfs-pointer",
    "number-out-of-range",
    "config-missing",
    "config-unreadable",
    "not-a-checkpoint",
    "repo-not-found",
    "revision-not-found",
    "repo-gated",
    "hub-unreachable",
]


@pytest.mark.parametrize("name", OURS)
def test_messages_table(
    name: str,
    repository: Path,
    outcome: Callable[[dict[str, Any]], tuple[str, dict[str, object]]],
) -> None:
    table = rules(repository)
    rule = table[name]
    kinds = [next(iter(test)) for test in rule["tests"]]
    assert {"hit", "miss"} == set(kinds)
    for test in rule["tests"]:
        if "miss" in test:
            assert name != outcome(test["miss"])[0]
            continue
        found, values = outcome(test["hit"])
        assert name == found
        assert set(rule["placeholders"]) <= set(values)
        message = Template.parse(rule["refuse"]).render(values)
        assert test["says"] in message
        others = [other["refuse"] for other in table.values() if other["name"] != name]
        assert [] == [other for other in others if test["says"] in other]


def test_messages_are_distinct(repository: Path) -> None:
    table = rules(repository)
    assert set(OURS) <= set(table)
    skeletons = {name: Template.parse(rule["refuse"]).skeleton() for name, rule in table.items()}
    pairs = [(a, b) for a in skeletons for b in skeletons if a != b]
    assert [] == [(a, b) for a, b in pairs if skeletons[a] in skeletons[b]]
    for rule in table.values():
        assert sorted(rule["placeholders"]) == sorted(set(Template.parse(rule["refuse"]).fields))
