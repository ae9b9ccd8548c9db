"""A repository's tensors on a Hugging Face hub, from range requests: kilobytes, whatever it weighs.

The first request for a file brings its head and, in `Content-Range`, its size; only a header
longer than the head costs a second one. All requests name one commit, so that a push in between
cannot mix two versions. URLs, tokens, proxies and offline mode are huggingface_hub's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from dspark.errors import Unreadable
from dspark.header_json import shown
from dspark.hub import stop_telemetry
from dspark.ranges import FileUnreadable, LocalReader, Reader
from dspark.tensors import INDEX_SUFFIX, SINGLE, SUFFIX, Tensors, index_checkpoint, index_files

if TYPE_CHECKING:
    from httpx2 import Response

_HEAD = 64 * 1024  # bytes of the first request; the header of a 36-layer model has 50,000
_THREADS = 8  # headers fetched at a time; latency, not bandwidth, is what 200 shards cost
_CONTENT_RANGE = re.compile(r"bytes ([0-9]{1,19})-([0-9]{1,19})/([0-9]{1,19})")
_EMPTY_RANGE = re.compile(r"bytes \*/0")


def index_remote(
    repo_id: str,
    revision: str | None,
    *,
    endpoint: str | None = None,
    token: str | bool | None = None,
) -> Tensors:
    """The tensors of a hub repository, from its headers alone.

    `endpoint` and `token` default to huggingface_hub's own (HF_ENDPOINT, the saved login). Offline
    (HF_HUB_OFFLINE) the answer comes from the local cache. Raises `Unreadable`
    (`hub-unreachable`) when the hub does not answer, or not with the ranges asked for.
    """
    from huggingface_hub import constants

    if constants.is_offline_mode():
        return index_checkpoint(_cached_folder(repo_id, revision))
    hub = _Hub(repo_id, endpoint and endpoint.rstrip("/"), token)
    commit, names = hub.listing(revision)

    def open_file(name: str) -> AbstractContextManager[RemoteReader]:
        if name not in names:
            raise FileNotFoundError(name)
        return nullcontext(RemoteReader(name, hub.ranges_of(name, commit)))

    top_level = [name for name in names if "/" not in name]
    return index_files(repo_id, top_level, open_file, threads=_THREADS)


@contextmanager
def open_remote(
    repo_id: str,
    revision: str | None,
    name: str,
    *,
    endpoint: str | None = None,
    token: str | bool | None = None,
) -> Iterator[Reader]:
    """Ranges of one file of a hub repository, with the meanings and refusals of `index_remote`.

    Raises FileNotFoundError where the repository has no such file.
    """
    from huggingface_hub import constants

    if constants.is_offline_mode():
        with LocalReader(_cached_folder(repo_id, revision) / name, name) as reader:
            yield reader
        return
    stop_telemetry()
    hub = _Hub(repo_id, endpoint and endpoint.rstrip("/"), token)
    commit, _ = hub.listing(revision)
    yield RemoteReader(name, hub.ranges_of(name, commit))


class Range(NamedTuple):
    """Bytes of a file, and the size of the whole file."""

    data: bytes
    total: int


class RemoteReader:
    """Ranges of a remote file; its head is fetched at once and kept."""

    __slots__ = ("_fetch", "_head", "name", "size")

    def __init__(self, name: str, fetch: Callable[[int, int], Range]) -> None:
        self.name = name
        self._fetch = fetch
        self._head, self.size = fetch(0, _HEAD)

    def read(self, start: int, length: int) -> bytes:
        # INVARIANT: callers bound a range by `size` first; a server never gets to choose it.
        assert start + length <= self.size
        head = self._head[start : start + length]
        if len(head) == length:
            return head
        rest = self._fetch(start + len(head), length - len(head))
        if rest.total != self.size:
            raise FileUnreadable(self.name, "it changed while it was read")
        return head + rest.data


class _Hub:
    """One repository on one hub."""

    def __init__(self, repo_id: str, endpoint: str | None, token: str | bool | None) -> None:
        from huggingface_hub import constants

        stop_telemetry()
        self._repo_id = repo_id
        self._endpoint = endpoint
        self._token = token
        self._timeout = float(constants.HF_HUB_DOWNLOAD_TIMEOUT)

    def listing(self, revision: str | None) -> tuple[str, frozenset[str]]:
        """The commit `revision` means now, and its file names."""
        from huggingface_hub import HfApi
        from huggingface_hub.errors import HFValidationError

        api = HfApi(endpoint=self._endpoint, token=self._token)
        with self._refusals():
            try:
                info = api.model_info(
                    self._repo_id,
                    revision=revision,
                    timeout=self._timeout,
                    expand=["sha", "siblings"],
                )
                names = frozenset(sibling.rfilename for sibling in info.siblings or ())
            except HFValidationError:
                raise
            except (ValueError, KeyError, TypeError, AttributeError):
                # What a login page or another service at this address makes of huggingface_hub.
                raise self._unreachable("it does not answer as a hub does") from None
        if info.sha is None or info.siblings is None:
            raise self._unreachable("it does not list the files of a commit")
        if not all(type(text) is str for text in (info.sha, *names)):
            raise self._unreachable("it does not answer as a hub does")
        return info.sha, names

    def ranges_of(self, name: str, commit: str) -> Callable[[int, int], Range]:
        """A function from (start, length) to that range of the file, shorter only at its end."""
        from huggingface_hub import get_session, hf_hub_url
        from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]

        url = hf_hub_url(self._repo_id, name, revision=commit, endpoint=self._endpoint)
        with self._refusals():
            headers = build_hf_headers(token=self._token)
        # A compressed answer would be a range of something else.
        headers["Accept-Encoding"] = "identity"

        def fetch(start: int, length: int) -> Range:
            wanted = {**headers, "Range": f"bytes={start}-{start + length - 1}"}
            # The client drops the token when a redirect leaves the host.
            with (
                self._refusals(),
                get_session().stream(
                    "GET", url, headers=wanted, timeout=self._timeout, follow_redirects=True
                ) as response,
            ):
                return self._range(response, name, start, length)

        return fetch

    def _range(self, response: Response, name: str, start: int, length: int) -> Range:
        """The range in `response`; a body that is anything else is not read."""
        status, headers = response.status_code, response.headers
        if status == 404:
            raise FileNotFoundError(name)
        if status == 416 and _EMPTY_RANGE.fullmatch(headers.get("Content-Range", "")):
            return Range(b"", 0)
        if status not in (200, 206):
            raise self._unreachable(f"HTTP {status} for `{shown(name)}`")
        if headers.get("Content-Encoding", "identity") != "identity":
            raise self._unreachable("it compresses what must be exact bytes")
        if status == 200:
            size = headers.get("Content-Length", "")
            # All of a file is a fair answer to a range that covers it.
            if start != 0 or not re.fullmatch("[0-9]{1,19}", size) or int(size) > length:
                raise self._unreachable("it ignores range requests and sends whole files")
            return Range(self._body(response, int(size)), int(size))
        match = _CONTENT_RANGE.fullmatch(headers.get("Content-Range", ""))
        if match is None:
            raise self._unreachable("it does not say which range it sends")
        first, last, total = map(int, match.groups())
        if first != start or last != min(start + length, total) - 1:
            raise self._unreachable("it sends another range than it was asked for")
        return Range(self._body(response, last + 1 - first), total)

    def _body(self, response: Response, length: int) -> bytes:
        body = bytearray()
        for chunk in response.iter_raw():
            body += chunk
            if len(body) >= length:
                break
        if len(body) != length:
            raise self._unreachable("its answer has another length than it says")
        return bytes(body)

    @contextmanager
    def _refusals(self) -> Iterator[None]:
        """Turns whatever the hub or the way to it raises into one named refusal."""
        import httpx2
        from huggingface_hub.errors import (
            HfHubHTTPError,
            HFValidationError,
            LocalTokenNotFoundError,
        )

        try:
            yield
        except HfHubHTTPError as error:
            raise self._unreachable(f"HTTP {error.response.status_code}") from None
        except LocalTokenNotFoundError:
            raise self._unreachable("a token is demanded and none is saved") from None
        except HFValidationError:
            raise self._unreachable("this is not the name of a repository") from None
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise self._unreachable(shown(str(error)) or "the connection failed") from None

    def _unreachable(self, reason: str) -> Unreadable:
        return Unreadable("hub-unreachable", repo_id=self._repo_id, reason=reason)


def _cached_folder(repo_id: str, revision: str | None) -> Path:
    """The repository's folder in the local cache, if weights were ever put there."""
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    for name in ("config.json", SINGLE, SINGLE + ".index.json"):
        try:
            found = try_to_load_from_cache(repo_id, name, revision=revision)
        except HFValidationError:
            break
        if isinstance(found, str):
            folder = Path(found).parent
            if any(path.name.endswith((SUFFIX, INDEX_SUFFIX)) for path in folder.iterdir()):
                return folder
    reason = "offline mode is on, and the cache has no weights of it"
    raise Unreadable("hub-unreachable", repo_id=repo_id, reason=reason)
