"""An HTTP/1.1 client without rules: sends any bytes, reads at any speed, disconnects at any time."""

from __future__ import annotations

import json
import socket
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit


class RawResponse:
    """A response: status, headers by lower-case name (last one wins), undecoded body."""

    def __init__(self, head: bytes, body: bytes) -> None:
        status_line, *lines = head.decode("latin-1").split("\r\n")
        self.status = int(status_line.split(" ", 2)[1])
        pairs = (line.split(":", 1) for line in lines if ":" in line)
        self.headers = {name.strip().lower(): value.strip() for name, value in pairs}
        self.body = body

    def json(self) -> Any:
        return json.loads(self.body)


class RawConnection:
    """One TCP connection."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._data = b""

    def send(self, data: bytes) -> None:
        """Send raw bytes."""
        self.sock.sendall(data)

    def half_close(self) -> None:
        """Shut down the sending side; answers can still be read."""
        self.sock.shutdown(socket.SHUT_WR)

    def read_until(self, mark: bytes) -> bytes:
        """Read up to and including the mark. Raises EOFError when the peer closes before."""
        while mark not in self._data:
            part = self.sock.recv(65536)
            if not part:
                raise EOFError(f"closed before {mark!r}: {self._data[-500:]!r}")
            self._data += part
        found, _, self._data = self._data.partition(mark)
        return found + mark

    def read_rest(self) -> bytes:
        """Read until the peer closes."""
        while part := self.sock.recv(65536):
            self._data += part
        rest, self._data = self._data, b""
        return rest

    def response(self) -> RawResponse:
        """Read one response with content-length, chunked coding or until close."""
        head = self.read_until(b"\r\n\r\n")[:-4]
        response = RawResponse(head, b"")
        if "content-length" in response.headers:
            length = int(response.headers["content-length"])
            while len(self._data) < length:
                part = self.sock.recv(65536)
                if not part:
                    raise EOFError("closed inside the body")
                self._data += part
            response.body, self._data = self._data[:length], self._data[length:]
        elif response.headers.get("transfer-encoding") == "chunked":
            response.body = b"".join(self._chunks())
        else:
            response.body = self.read_rest()
        return response

    def _chunks(self) -> Generator[bytes]:
        while True:
            size = int(self.read_until(b"\r\n").strip().split(b";")[0], 16)
            chunk = b""
            while len(chunk) < size + 2:
                if not self._data:
                    self._data = self.sock.recv(65536)
                    if not self._data:
                        raise EOFError("closed inside a chunk")
                take = size + 2 - len(chunk)
                chunk, self._data = chunk + self._data[:take], self._data[take:]
            if size == 0:
                return
            yield chunk[:-2]


@contextmanager
def connect(
    url: str, *, receive_buffer: int | None = None, timeout_s: float = 180.0
) -> Generator[RawConnection]:
    """A connection to the server at `url`. receive_buffer: SO_RCVBUF in bytes, for slow readers."""
    parts = urlsplit(url)
    assert parts.hostname is not None and parts.port is not None
    sock = socket.socket()
    if receive_buffer is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    sock.settimeout(timeout_s)
    with sock:
        sock.connect((parts.hostname, parts.port))
        yield RawConnection(sock)


def post_bytes(
    url: str, path: str, body: dict[str, Any] | bytes, headers: dict[str, str] | None = None
) -> bytes:
    """A whole, well-formed POST request with a JSON body."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    fields = {
        "host": urlsplit(url).netloc,
        "content-type": "application/json",
        "content-length": str(len(data)),
        **(headers or {}),
    }
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"POST {path} HTTP/1.1\r\n{head}\r\n".encode("latin-1") + data


def post(
    url: str, path: str, body: dict[str, Any] | bytes, headers: dict[str, str] | None = None
) -> RawResponse:
    """Send one POST on a connection of its own and read the whole answer."""
    with connect(url) as connection:
        connection.send(post_bytes(url, path, body, headers))
        return connection.response()


def get(url: str, path: str, headers: dict[str, str] | None = None) -> RawResponse:
    """Send one GET on a connection of its own and read the whole answer."""
    fields = {"host": urlsplit(url).netloc, **(headers or {})}
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    with connect(url) as connection:
        connection.send(f"GET {path} HTTP/1.1\r\n{head}\r\n".encode("latin-1"))
        return connection.response()
