"""A hub on the loopback interface that serves files by range, well or badly, and keeps count."""

from __future__ import annotations

import json
import re
import threading
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

REPO = "someone/draft"
COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass
class Request:
    host: str
    path: str
    range: str | None
    authorization: str | None
    encoding: str | None
    sent: int = 0


@dataclass
class RangeHub:
    """What a test sets and what it may look at afterwards."""

    folder: Path
    endpoint: str = ""
    fault: str = ""  # what is wrong with the answers to range requests
    status: int = 0  # answer file requests with this status instead
    redirect_to: str = ""  # send file requests to this other hub
    listing: bytes | None = None  # answer the API with this instead
    listing_status: int = 200
    together: threading.Barrier | None = None  # hold weight requests until this many are in flight
    requests: list[Request] = field(default_factory=list)

    @property
    def sent(self) -> int:
        return sum(request.sent for request in self.requests)


@contextmanager
def serving(folder: Path, host: str = "127.0.0.1") -> Iterator[RangeHub]:
    hub = RangeHub(folder)

    class Handler(_Handler):
        state = hub

    server = ThreadingHTTPServer((host, 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    hub.endpoint = f"http://{host}:{server.server_port}"
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    state: RangeHub
    protocol_version = "HTTP/1.1"

    def handle(self) -> None:
        with suppress(ConnectionError):  # the client leaves a bad answer, as it should
            super().handle()

    def log_message(self, *_: object) -> None:
        """Nothing: a test's output is its own."""

    def do_GET(self) -> None:
        headers = self.headers
        request = Request(
            headers["Host"],
            # Not `self.path`, from which http.server has removed a doubled slash.
            self.requestline.split()[1],
            headers.get("Range"),
            headers.get("Authorization"),
            headers.get("Accept-Encoding"),
        )
        self.state.requests.append(request)
        if self.path.startswith("/api/models/"):
            self._listing(request)
        elif self.path == f"/{REPO}/resolve/main/config.json":
            self._config(request)
        else:
            self._file(request)

    def do_HEAD(self) -> None:
        path = self.requestline.split()[1]
        self._config(Request(self.headers["Host"], path, None, None, None), with_body=False)

    def _config(self, request: Request, *, with_body: bool = True) -> None:
        """What the library downloads whole: it asks for the head of it first."""
        body = (self.state.folder / "config.json").read_bytes()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", '"config"')
        self.send_header("X-Repo-Commit", COMMIT)
        self.end_headers()
        if with_body:
            self.wfile.write(body)
            request.sent += len(body)

    def _listing(self, request: Request) -> None:
        folder = self.state.folder
        names = [str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()]
        answer = {"id": REPO, "sha": COMMIT, "siblings": [{"rfilename": name} for name in names]}
        body = json.dumps(answer).encode() if self.state.listing is None else self.state.listing
        self._answer(request, self.state.listing_status, {"Content-Type": "application/json"}, body)

    def _file(self, request: Request) -> None:
        state = self.state
        prefix = f"/{REPO}/resolve/{COMMIT}/"
        if state.redirect_to:
            self._answer(request, 302, {"Location": state.redirect_to + self.path})
            return
        if state.status:
            self._answer(request, state.status, {}, b"no")
            return
        path = state.folder / self.path.removeprefix(prefix)
        if not self.path.startswith(prefix) or not path.is_file():
            self._answer(request, 404, {}, b"no such file")
            return
        if state.together and path.suffix == ".safetensors":
            state.together.wait(timeout=5)
        match = re.fullmatch(r"bytes=(\d+)-(\d+)", request.range or "")
        assert match, f"every request for a file asks for a range, not {request.range}"
        self._range(request, path, int(match[1]), int(match[2]))

    def _range(self, request: Request, path: Path, first: int, last: int) -> None:
        fault, size = self.state.fault, path.stat().st_size
        if fault == "ignores ranges" or (fault == "whole when covered" and last >= size):
            self._whole(request, path, size)
            return
        if first >= size:
            self._answer(request, 416, {"Content-Range": f"bytes */{size}"})
            return
        last = min(last, size - 1) - (fault == "less than asked")
        with path.open("rb") as file:
            file.seek(first)
            body = file.read(last + 1 - first)
        if fault == "head instead" and first:
            self._answer(request, 200, {}, body)
            return
        if fault == "unknown size in shards" and path.suffix == ".safetensors":
            fault = "unknown size"
        headers = {"Content-Range": f"bytes {first}-{last}/{size}"}
        if fault == "endless body":
            self._endless(request, headers)
            return
        if fault == "compressed":
            headers["Content-Encoding"] = "gzip"
        claims = {
            "another range": {"Content-Range": f"bytes {first + 1}-{last + 1}/{size + 1}"},
            "unknown size": {"Content-Range": f"bytes {first}-{last}/*"},
            "no range": {"Content-Range": ""},
            "grows": {"Content-Range": f"bytes {first}-{last}/{size + bool(first)}"},
        }
        headers |= claims.get(fault, {})
        body = {"short body": body[:-1], "long body": body + b"x"}.get(fault, body)
        self._answer(request, 206, headers, body)

    def _whole(self, request: Request, path: Path, size: int) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(size))
        self.end_headers()
        with path.open("rb") as file:
            while chunk := file.read(65536):
                self.wfile.write(chunk)
                request.sent += len(chunk)

    def _endless(self, request: Request, headers: dict[str, str]) -> None:
        self.send_response(206)
        self.send_header("Content-Range", headers["Content-Range"])
        self.end_headers()
        while request.sent < 2**28:
            self.wfile.write(bytes(65536))
            request.sent += 65536

    def _answer(
        self, request: Request, status: int, headers: dict[str, str], body: bytes = b""
    ) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        request.sent += len(body)
