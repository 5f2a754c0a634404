"""A model hub on loopback: serves the routes that pulling uses, and imitates bad networks and hubs.

Faults are taken from a queue, one for each request of their kind, so that a test says exactly what happens when. Files
honour Range requests. It runs in a thread with a port of its own; `requests` has what was asked, with headers.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import json
import threading
from collections import deque
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, cast
from urllib.parse import unquote, urlsplit

COMMIT: Final = "0123456789abcdef0123456789abcdef01234567"


@dataclass(frozen=True)
class Fault:
    """The faults of one answer. Unset fields leave their part correct.

    status: instead of the answer, with `headers`. body: other bytes. cut_at: close the connection after so many bytes
    of this answer. stall_at: send so many, then nothing until the hub is released. flip_at: another bit at this byte of
    the file. length: a Content-Length that is not true. no_range: ignore the Range header. location: redirect there.
    """

    status: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    body: bytes | None = None
    cut_at: int | None = None
    stall_at: int | None = None
    flip_at: int | None = None
    length: int | None = None
    no_range: bool = False
    chunked: bool = False
    location: str | None = None


@dataclass
class FakeRepo:
    """A repository: its files by path. `digests` and `extra` change what the listing says."""

    files: dict[str, bytes]
    commit: str = COMMIT
    revisions: tuple[str, ...] = ("main",)
    gated: bool = False
    token: str | None = None
    digests: dict[str, str] = field(default_factory=dict[str, str])
    extra: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    def listing(self, repo: str) -> dict[str, Any]:
        """As `/api/models/{repo}/revision/{revision}?blobs=true` answers."""
        siblings: list[dict[str, Any]] = []
        for path, content in self.files.items():
            sha256 = self.digests.get(path, hashlib.sha256(content).hexdigest())
            lfs = {"sha256": sha256, "size": len(content), "pointerSize": 134}
            siblings.append({"rfilename": path, "size": len(content), "blobId": "b" * 40, "lfs": lfs})
        return {"id": repo, "sha": self.commit, "gated": self.gated, "siblings": siblings + self.extra}


@dataclass(frozen=True)
class Asked:
    """A received request. Header names are in lower case."""

    path: str
    headers: Mapping[str, str]


class FakeHub:
    """The hub. `url` is its endpoint; `name_url` the same by the name localhost."""

    def __init__(self) -> None:
        self.repos: dict[str, FakeRepo] = {}
        self.file_faults: deque[Fault] = deque()
        self.listing_faults: deque[Fault] = deque()
        self.requests: list[Asked] = []
        self.released = threading.Event()
        self.stalled = threading.Event()
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.hub = self
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    @property
    def url(self) -> str:
        """Scheme, address and port."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def name_url(self) -> str:
        """The same endpoint under another host name."""
        return f"http://localhost:{self._server.server_address[1]}"

    def asked(self, part: str) -> list[Asked]:
        """The requests whose path contains `part`, in order."""
        return [asked for asked in self.requests if part in asked.path]

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End everything, including stalled answers."""
        self.released.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(60)
        assert not self._thread.is_alive()


@contextlib.contextmanager
def running_hub() -> Generator[FakeHub]:
    """A hub for the duration of a `with`."""
    hub = FakeHub()
    hub.start()
    try:
        yield hub
    finally:
        hub.stop()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    hub: FakeHub

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that leave: the tests provoke them."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    @property
    def hub(self) -> FakeHub:
        return cast(_Server, self.server).hub

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""

    def do_GET(self) -> None:
        hub = self.hub
        path = unquote(urlsplit(self.path).path)
        hub.requests.append(Asked(self.path, {name.lower(): value for name, value in self.headers.items()}))
        parts = path.strip("/").split("/")
        if parts[:2] == ["api", "models"] and len(parts) >= 6 and parts[4] == "revision":
            self._listing("/".join(parts[2:4]), "/".join(parts[5:]))
        elif len(parts) >= 5 and parts[2] == "resolve":
            self._file("/".join(parts[:2]), parts[3], "/".join(parts[4:]))
        else:
            self._refuse(404, {})

    def _listing(self, repo: str, revision: str) -> None:
        hub = self.hub
        fault = hub.listing_faults.popleft() if hub.listing_faults else Fault()
        known = hub.repos.get(repo)
        # As on the public hub: a gated repository can be listed, not downloaded.
        if self._went_wrong(fault) or not ((known and known.gated) or self._may(known, repo)):
            return
        assert known is not None
        if revision not in (*known.revisions, known.commit):
            self._refuse(404, {"X-Error-Code": "RevisionNotFound", "X-Error-Message": "Invalid rev id"})
            return
        body = fault.body if fault.body is not None else json.dumps(known.listing(repo)).encode()
        self._send(200, {"Content-Type": "application/json", **fault.headers}, body, fault)

    def _file(self, repo: str, revision: str, path: str) -> None:
        hub = self.hub
        fault = hub.file_faults.popleft() if hub.file_faults else Fault()
        known = hub.repos.get(repo)
        if self._went_wrong(fault) or not self._may(known, repo):
            return
        assert known is not None
        if revision not in (*known.revisions, known.commit) or path not in known.files:
            self._refuse(404, {"X-Error-Code": "EntryNotFound", "X-Error-Message": "Entry not found"})
            return
        content = known.files[path] if fault.body is None else fault.body
        if fault.flip_at is not None:
            content = bytearray(content)
            content[fault.flip_at] ^= 1
        headers = {"Content-Type": "application/octet-stream", "Accept-Ranges": "bytes", **fault.headers}
        start = 0
        wanted = self.headers.get("Range")
        if wanted and not fault.no_range and fault.body is None:
            start = int(wanted.removeprefix("bytes=").rstrip("-"))
            if start >= len(content):
                self._refuse(416, {"Content-Range": f"bytes */{len(content)}"})
                return
            headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
        self._send(206 if start else 200, headers, bytes(content[start:]), fault)

    def _went_wrong(self, fault: Fault) -> bool:
        if fault.location is not None:
            self._refuse(302, {"Location": fault.location})
            return True
        if fault.status is not None:
            self._refuse(fault.status, fault.headers)
            return True
        return False

    def _may(self, known: FakeRepo | None, repo: str) -> bool:
        if known is None:
            self._refuse(404, {"X-Error-Code": "RepoNotFound", "X-Error-Message": "Repository not found"})
            return False
        if known.token is not None and self.headers.get("Authorization") != f"Bearer {known.token}":
            code = "GatedRepo" if known.gated else "RepoNotFound"
            self._refuse(
                401, {"X-Error-Code": code, "X-Error-Message": f"Access to model {repo} is restricted"}
            )
            return False
        return True

    def _refuse(self, status: int, headers: Mapping[str, str]) -> None:
        self._send(status, headers, b"", Fault())

    def _send(self, status: int, headers: Mapping[str, str], body: bytes, fault: Fault) -> None:
        hub = self.hub
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if fault.chunked:
            self.send_header("Transfer-Encoding", "chunked")
        else:
            self.send_header("Content-Length", str(len(body) if fault.length is None else fault.length))
        self.end_headers()
        end = min(value for value in (len(body), fault.cut_at, fault.stall_at) if value is not None)
        for at in range(0, end, 1 << 16):
            piece = body[at : min(end, at + (1 << 16))]
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece) if fault.chunked else piece)
        if fault.stall_at is not None:
            self.wfile.flush()
            hub.stalled.set()
            hub.released.wait(300)
        if end < len(body) or (fault.length is not None and fault.length != len(body)):
            self.close_connection = True
        elif fault.chunked:
            self.wfile.write(b"0\r\n\r\n")


def gzip_bomb(n_bytes: int) -> bytes:
    """A gzip file of `n_bytes` blanks."""
    return gzip.compress(b" " * n_bytes, compresslevel=9)
