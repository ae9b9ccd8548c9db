"""Where a checkpoint is, turned into the bytes of its config.json.

A local path is final: nothing about it is ever asked of a network, and the code that could ask is
not even imported. What a file or folder is called does not count, beyond the suffixes below.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal

from dspark.errors import Unreadable
from dspark.strict_json import LARGEST_CONFIG

Download = Callable[..., str]
"""What `huggingface_hub.hf_hub_download` is: a function from a repo's file to a local path."""

_CONFIG = "config.json"
_GGUF = b"GGUF"
_BESIDE_CONFIG = (".safetensors", ".safetensors.index.json")
_NAME = r"[A-Za-z0-9_](?:[A-Za-z0-9._-]{0,94}[A-Za-z0-9_])?"
_REPO = re.compile(rf"(?P<repo>{_NAME}/{_NAME})(?:@(?P<revision>[A-Za-z0-9_][A-Za-z0-9._/-]*))?")
# A repository could be called so, but whoever types this has lost a file, and a gate that answers
# for a file it cannot find must not answer from elsewhere.
_FILE_SUFFIXES = (".json", ".safetensors", ".gguf", ".bin", ".pt", ".pth", ".txt", ".git")
_COMMIT = re.compile(rb"[0-9A-Za-z_-]{1,64}")
_LONGEST_REF = 128  # bytes read of refs/main; it holds a commit hash


@dataclass(frozen=True, slots=True)
class Source:
    """What was found at a source argument."""

    kind: Literal["config", "gguf"]
    data: bytes
    """The bytes of config.json, at most one more than `LARGEST_CONFIG`; empty for a GGUF file."""
    folder: Path | None
    """The local folder that holds the checkpoint; None for standard input and for a repo id."""
    repo: tuple[str, str | None] | None = None
    """Name and revision, if the config came from the hub."""


def read_source(
    source: str | os.PathLike[str],
    *,
    stdin: BinaryIO | None = None,
    download: Download | None = None,
) -> Source:
    """The config.json, or the GGUF file, that `source` leads to.

    `source` is a checkpoint folder, a .json, .safetensors or .gguf file, a folder of the Hugging
    Face cache, `-` for standard input or, only for a string that leads to nothing local, a repo id
    `owner/name` or `owner/name@revision`. `stdin` and `download` replace the real ones.

    Raises `Unreadable`: `not-a-checkpoint`, `config-missing`, `config-unreadable`, and for a repo
    id what `dspark.hub.fetch_config` raises.
    """
    if source == "-":
        return _from_stdin(stdin)
    path = Path(source)
    try:
        status = _status(path) if os.fspath(source) else None
    except ValueError:
        raise Unreadable("not-a-checkpoint", found="no file system accepts this name") from None
    if status is not None:
        if stat.S_ISDIR(status.st_mode):
            return _from_folder(path)
        _require_regular(status)
        return _from_file(path)
    repo = _repo(source) if isinstance(source, str) else None
    if repo is None:
        raise Unreadable("not-a-checkpoint", found="no file or folder has this name")
    return _from_hub(repo, download)


def read_repo(source: str, *, download: Download | None = None) -> Source:
    """The config.json of the repo id `source`, whatever a local file or folder of that name holds.

    Raises `Unreadable`: `not-a-checkpoint`, and what `dspark.hub.fetch_config` raises.
    """
    repo = _repo(source)
    if repo is None:
        raise Unreadable("not-a-checkpoint", found="it is no repo id")
    return _from_hub(repo, download)


def _from_hub(repo: tuple[str, str | None], download: Download | None) -> Source:
    from dspark.hub import fetch_config

    return Source("config", fetch_config(*repo, download), None, repo)


def _repo(source: str) -> tuple[str, str | None] | None:
    match = _REPO.fullmatch(source)
    if match is None or "--" in match["repo"] or ".." in source:
        return None
    if match["repo"].lower().endswith(_FILE_SUFFIXES):
        return None
    return match["repo"], match["revision"]


def _from_stdin(stdin: BinaryIO | None) -> Source:
    stream = stdin if stdin is not None else getattr(sys.stdin, "buffer", None)
    if stream is None:
        raise Unreadable("config-unreadable", reason="there is no standard input")
    try:
        return _sorted_by_magic(_read(stream, LARGEST_CONFIG + 1), None)
    except ValueError:
        raise Unreadable("config-unreadable", reason="standard input is closed") from None
    except OSError as error:
        raise _unreadable(error) from None


def _from_folder(folder: Path) -> Source:
    snapshot = folder
    if _status(folder / _CONFIG) is None:
        snapshot = _snapshot(folder) or folder
    if _status(snapshot / _CONFIG) is not None:
        return Source("config", _read_file(snapshot / _CONFIG), snapshot)
    if any(entry.suffix.lower() == ".gguf" and _is_gguf(entry) for entry in _entries(snapshot)):
        return Source("gguf", b"", snapshot)
    raise Unreadable("config-missing")


def _from_file(path: Path) -> Source:
    name = path.name.lower()
    if name.endswith(_BESIDE_CONFIG):
        config = path.parent / _CONFIG
        if _status(config) is None:
            raise Unreadable("config-missing")
        return Source("config", _read_file(config), path.parent)
    if name.endswith(".json"):
        return _sorted_by_magic(_read_file(path), path.parent)
    if _is_gguf(path):
        return Source("gguf", b"", path.parent)
    raise Unreadable("not-a-checkpoint", found="it is a file of another kind")


def _is_gguf(path: Path) -> bool:
    return _is(stat.S_ISREG, path) and _read_file(path, len(_GGUF)) == _GGUF


def _is(kind: Callable[[int], bool], path: Path) -> bool:
    """Whether something of this kind is there; what cannot be looked at is not."""
    try:
        return kind(path.stat().st_mode)
    except OSError:
        return False


def _sorted_by_magic(data: bytes, folder: Path | None) -> Source:
    if data.startswith(_GGUF):
        return Source("gguf", b"", folder)
    return Source("config", data, folder)


def _snapshot(folder: Path) -> Path | None:
    """The snapshot that a repo's folder in the Hugging Face cache stands for."""
    snapshots, main = folder / "snapshots", folder / "refs" / "main"
    if _status(snapshots) is None:
        return None
    if _status(main) is not None:
        commit = _read_file(main, _LONGEST_REF).strip()
        named = snapshots / commit.decode("ascii", "replace")
        return named if _COMMIT.fullmatch(commit) and _status(named) is not None else None
    found = [entry for entry in _entries(snapshots) if _is(stat.S_ISDIR, entry)]
    return found[0] if len(found) == 1 else None


def _entries(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError as error:
        raise _unreadable(error) from None


def _status(path: Path) -> os.stat_result | None:
    """What is at `path`, links followed; None if there is nothing, not even a broken link."""
    try:
        return path.stat()
    except (FileNotFoundError, NotADirectoryError):
        if path.is_symlink():
            raise Unreadable("config-unreadable", reason="it is a link to nothing") from None
        return None
    except OSError as error:
        # Nothing can have a name that is too long.
        if error.errno == errno.ENAMETOOLONG:
            return None
        raise _unreadable(error) from None


def _read_file(path: Path, most: int = LARGEST_CONFIG + 1) -> bytes:
    """The first bytes of a regular file; a pipe or a device could block forever."""
    try:
        _require_regular(path.stat())
        # O_NONBLOCK: what was a file a moment ago may be a pipe now, and must not hang.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb", buffering=0) as file:
            _require_regular(os.fstat(descriptor))
            return _read(file, most)
    except OSError as error:
        raise _unreadable(error) from None


def _require_regular(status: os.stat_result) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise Unreadable("config-unreadable", reason="it is a folder")
    if not stat.S_ISREG(status.st_mode):
        raise Unreadable("config-unreadable", reason="it is not a regular file")


def _read(stream: BinaryIO, most: int) -> bytes:
    data = bytearray()
    # A raw stream may return less than it is asked for before its end.
    while len(data) < most and (chunk := stream.read(most - len(data))):
        data += chunk
    return bytes(data)


def _unreadable(error: OSError) -> Unreadable:
    return Unreadable("config-unreadable", reason=(error.strerror or "input error").lower())
