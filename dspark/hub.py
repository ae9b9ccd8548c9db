"""The config.json of a repo on the Hugging Face hub: one small file, or a named refusal.

Everything goes through `huggingface_hub`, so its cache and its settings (HF_HOME, HF_ENDPOINT,
HF_TOKEN, HF_HUB_OFFLINE, proxies) mean what they mean everywhere else.
"""

from __future__ import annotations

import importlib
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from dspark.errors import Unreadable
from dspark.strict_json import LARGEST_CONFIG


def fetch_config(
    repo_id: str, revision: str | None, download: Callable[..., str] | None = None
) -> bytes:
    """The bytes of a repo's config.json, at most one more than `LARGEST_CONFIG`.

    `revision` is a branch, tag or commit; None is the default branch. `download` replaces
    `huggingface_hub.hf_hub_download` and takes its arguments.

    Raises `Unreadable`: `repo-not-found`, `revision-not-found`, `repo-gated`, `config-missing`,
    `hub-unreachable`, `not-a-checkpoint` for a name that no repo can have, and
    `config-unreadable` for a cache that cannot be written or read.
    """
    try:
        path = (download or _download)(repo_id, "config.json", revision=revision)
        with Path(path).open("rb") as file:
            return file.read(LARGEST_CONFIG + 1)
    except Exception as error:
        refusal = _refusal(error, repo_id, revision)
        if refusal is None:
            raise
        raise refusal from None


def replay(status: int | None, error: str | None) -> Callable[..., str]:
    """A stand-in for `hf_hub_download` that fails as it would on one answer of a hub.

    `status` and `error` are the HTTP status and the `X-Error-Code` header of that answer; a
    `status` of None is a hub that cannot be connected to. No socket is opened. Raises ValueError
    for a status that is not a failure and for an error code without an answer to carry it.
    """
    if status is None:
        if error is not None:
            raise ValueError("an error code needs a status")
    elif not 400 <= status <= 599:
        raise ValueError("a status that fails is between 400 and 599")

    def download(repo_id: str, filename: str, *, revision: str | None = None) -> str:
        from huggingface_hub import errors, hf_hub_url
        from huggingface_hub.utils import hf_raise_for_status  # type: ignore[attr-defined]

        http: Any = _http()
        url = hf_hub_url(repo_id, filename, revision=revision, endpoint="https://huggingface.co")
        try:
            if status is None:
                raise http.ConnectError("connection refused")
            headers = {} if error is None else {"X-Error-Code": error}
            request = http.Request("HEAD", url)
            hf_raise_for_status(http.Response(status, headers=headers, request=request))
        except (
            errors.RepositoryNotFoundError,
            errors.RevisionNotFoundError,
            errors.RemoteEntryNotFoundError,
        ):
            raise
        except (errors.HfHubHTTPError, http.ConnectError) as failure:
            raise errors.LocalEntryNotFoundError("not in the cache either") from failure
        raise AssertionError  # INVARIANT: hf_raise_for_status raises from 400 on

    return download


def _download(repo_id: str, filename: str, *, revision: str | None) -> str:
    from huggingface_hub import hf_hub_download
    from huggingface_hub.utils import tqdm  # type: ignore[attr-defined]

    class NoProgress(tqdm):
        """Draws nothing, even where the library was told to draw always."""

        def __init__(self, *args: object, **settings: object) -> None:
            merged = {**settings, "disable": True}
            super().__init__(*args, **merged)  # type: ignore[no-untyped-call]

    stop_telemetry()
    with _quiet():
        return hf_hub_download(repo_id, filename, revision=revision, tqdm_class=NoProgress)


def stop_telemetry() -> None:
    """Turns the library's telemetry off, for good and not for one call.

    It names the calling tool in every request and, from 2.x on, first asks the hub which tools
    there are. Other threads must not put it back in between.
    """
    from huggingface_hub import constants

    constants.HF_HUB_DISABLE_TELEMETRY = True


@contextmanager
def _quiet() -> Iterator[None]:
    """Keeps the library's own log lines of this thread off the terminal.

    Its retries and warnings come back as one refusal. Levels stay as they are: they belong to the
    process, and other threads may be using the library.
    """
    thread = threading.get_ident()

    def is_elsewhere(record: logging.LogRecord) -> bool:
        return record.thread != thread

    handlers = list(logging.getLogger("huggingface_hub").handlers)
    for handler in handlers:
        handler.addFilter(is_elsewhere)
    try:
        yield
    finally:
        for handler in handlers:
            handler.removeFilter(is_elsewhere)


def _http() -> ModuleType:
    """The HTTP library that this version of huggingface_hub stands on."""
    from huggingface_hub.errors import HfHubHTTPError

    base = next(base for base in HfHubHTTPError.__mro__ if base.__name__ == "HTTPError")
    return importlib.import_module(base.__module__.partition(".")[0])


def _refusal(error: Exception, repo_id: str, revision: str | None) -> Unreadable | None:
    """The refusal that an exception of the library stands for; None for one it does not raise."""
    from huggingface_hub import errors

    if isinstance(error, errors.LocalEntryNotFoundError) and isinstance(error.__cause__, Exception):
        error = error.__cause__  # what kept it from the hub, before it tried the cache
    if isinstance(error, errors.HFValidationError):
        return Unreadable("not-a-checkpoint", found="no repo can have this name")
    status = getattr(getattr(error, "response", None), "status_code", None)
    if isinstance(error, errors.RevisionNotFoundError):
        return Unreadable("revision-not-found", repo=repo_id, revision=revision)
    if isinstance(error, errors.GatedRepoError) or status == 403:
        return Unreadable("repo-gated", repo=repo_id)
    if isinstance(error, errors.RepositoryNotFoundError) or status == 401:
        return Unreadable("repo-not-found", repo=repo_id)
    if isinstance(error, errors.RemoteEntryNotFoundError):
        return Unreadable("config-missing")
    reason = f"it answers HTTP {status}" if status is not None else _reason(error)
    if reason is not None:
        return Unreadable("hub-unreachable", reason=reason)
    if isinstance(error, OSError):
        detail = (error.strerror or "input error").lower()
        return Unreadable("config-unreadable", reason=f"the hub cache fails: {detail}")
    return None


def _reason(error: Exception) -> str | None:
    from huggingface_hub import errors

    if isinstance(error, errors.OfflineModeIsEnabled | errors.LocalEntryNotFoundError):
        return "offline mode is on, and the config is not in the cache"
    if isinstance(error, errors.FileMetadataError):
        return "the endpoint does not answer as a hub does"
    if type(error).__module__.partition(".")[0] == _http().__name__:
        kind = type(error).__name__
        for part, reason in _TRANSPORT_REASONS.items():
            if part in kind:
                return reason
        return "the connection fails"
    if isinstance(error, ValueError | ImportError):
        return "a setting of its endpoint, proxy or token is not valid"
    return None


_TRANSPORT_REASONS = {
    "Timeout": "it does not answer in time",
    "Proxy": "the proxy fails",
    "InvalidURL": "the endpoint is not a URL",
    "UnsupportedProtocol": "the endpoint is not a URL",
}
