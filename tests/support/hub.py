"""A hub on the loopback interface: small files, every way to refuse them, and a record of both."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    authorization: str | None
    user_agent: str


@dataclass
class Hub:
    """What a test sets, and what it may look at afterwards."""

    endpoint: str = ""
    configs: dict[tuple[str, str], bytes] = field(default_factory=dict)
    """(repo id, revision) -> its config.json."""
    refusals: dict[str, tuple[int, str | None]] = field(default_factory=dict)
    """Repo id -> the status and X-Error-Code that all its requests get."""
    headers: dict[str, str] = field(default_factory=dict)
    """Sent with every answer."""
    token: str | None = None
    """If set, a request without it is answered as the hub answers a stranger: 401."""
    requests: list[Request] = field(default_factory=list)

    def answer(self, request: Request) -> tuple[int, str | None, bytes]:
        repo_id, _, rest = request.path.lstrip("/").partition("/resolve/")
        revision, _, name = rest.rpartition("/")
        if repo_id in self.refusals:
            return *self.refusals[repo_id], b""
        if self.token is not None and request.authorization != f"Bearer {self.token}":
            return 401, "RepoNotFound", b""
        if repo_id not in {known for known, _ in self.configs}:
            return 404, "RepoNotFound", b""
        if (repo_id, revision) not in self.configs:
            return 404, "RevisionNotFound", b""
        if name != "config.json":
            return 404, "EntryNotFound", b""
        return 200, None, self.configs[repo_id, revision]


@contextmanager
def serving() -> Iterator[Hub]:
    hub = Hub()

    class Handler(_Handler):
        state = hub

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    hub.endpoint = f"http://127.0.0.1:{server.server_port}"
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    state: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Nothing: a test's output is its own."""

    def do_HEAD(self) -> None:
        self._answer(b"")

    def do_GET(self) -> None:
        self._answer(None)

    def _answer(self, body: bytes | None) -> None:
        request = Request(
            self.command,
            self.path,
            self.headers.get("Authorization"),
            self.headers.get("User-Agent", ""),
        )
        self.state.requests.append(request)
        status, error, content = self.state.answer(request)
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        if error is not None:
            self.send_header("X-Error-Code", error)
        if content:  # a page without a body is no hub's
            self.send_header("ETag", f'"{hashlib.sha256(content).hexdigest()}"')
            self.send_header("X-Repo-Commit", COMMIT)
        for name, value in self.state.headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content if body is None else body)
