"""Which URLs are fetched, and what their hosts may answer."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Generator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

import pytest

from jan_serve.api import image_fetcher as module
from jan_serve.api.image_fetcher import image_fetcher
from jan_serve.errors import InvalidImage

pytestmark = pytest.mark.anyio
FILE = b"the file"


class Handler(BaseHTTPRequestHandler):
    asked: ClassVar[list[tuple[str, dict[str, str]]]] = []
    released: ClassVar[threading.Event] = threading.Event()

    def do_GET(self) -> None:
        self.asked.append((self.path, {name.lower(): value for name, value in self.headers.items()}))
        if self.path == "/stalls":
            self.released.wait(30)
            return
        status, _, location = self.path.strip("/").partition("/to/")
        self.send_response(int(status) if status.isdigit() else 200)
        if location:
            self.send_header("Location", location)
        content = FILE if "long" not in self.path else FILE * 100
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Set-Cookie", "a=b")
        self.end_headers()
        with contextlib.suppress(OSError):  # the client may have seen enough
            self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""


@pytest.fixture
def host() -> Generator[str]:
    Handler.asked.clear()
    Handler.released.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        Handler.released.set()
        server.shutdown()
        thread.join()


async def fetched(url: str, *hosts: str) -> bytes:
    fetch = image_fetcher(hosts)
    assert fetch is not None
    return await fetch(url)


def test_without_hosts_there_is_no_fetcher() -> None:
    assert image_fetcher(()) is None


async def test_a_file_of_a_named_host(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    assert await fetched(f"http://{host}/a.png", host) == FILE
    assert await fetched(f"HTTP://{host}/302/to//b.png", "other", host) == FILE
    paths = [path for path, _ in Handler.asked]
    assert paths == ["/a.png", "/302/to//b.png", "/b.png"]
    assert all("cookie" not in headers and "authorization" not in headers for _, headers in Handler.asked)


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("http://{host}/", "no images from 127.0.0.1:"),
        ("http://user:key@named/", "user name"),
        ("ftp://named/", "only http and https"),
        ("http://named:8080/", "no images from named:8080"),
        ("https://named.evil.example/", "no images from named.evil.example"),
        ("http://[::1]/", r"no images from \[::1\]"),
        ("http://169.254.169.254/latest", "no images from 169.254.169.254"),
        ("http://named:port/", "not a URL"),
    ],
)
async def test_what_is_not_asked_for(host: str, url: str, reason: str) -> None:
    with pytest.raises(InvalidImage, match=reason):
        await fetched(url.format(host=host), "named")
    assert Handler.asked == []


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("404", "status 404"),
        ("500", "status 500"),
        ("302/to/http://169.254.169.254/", "no images from 169.254.169.254"),
        ("302/to/file:///etc/passwd", "only http and https"),
        ("302/to/302", "more than 3 redirects"),
        ("long", "more than 99 bytes"),
    ],
)
async def test_answers_that_are_no_image(
    host: str, path: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_FILE_BYTES", 99)
    if path == "302/to/302":
        path = "302/to/" * 9 + "200"
    with pytest.raises(InvalidImage, match=reason):
        await fetched(f"http://{host}/{path}", host)


@pytest.fixture
def asked_names(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names that are looked up. Those of `.example` have the address before it: a-b-c-d.example."""
    asked: list[str] = []
    real = socket.getaddrinfo

    def look_up(host: Any, port: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(host, bytes) or not host.endswith(".example"):
            return real(host, port, *args, **kwargs)
        asked.append(host)
        address = host.removesuffix(".example")
        address = address.replace("-", ":" if address.startswith("-") else ".")
        return real(address, port, *args, **kwargs)

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    return asked


@pytest.mark.parametrize(
    "name", ["127-0-0-1", "127-9-9-9", "0-0-0-0", "169-254-169-254", "--1", "--ffff-127.0.0.1", "224-0-0-1"]
)
async def test_a_name_of_this_machine_is_not_asked(host: str, asked_names: list[str], name: str) -> None:
    port = host.partition(":")[2]
    named = f"{name}.example:{port}"
    with pytest.raises(
        InvalidImage, match=rf"{named}, which leads to .* \(image_hosts names such an address itself\)"
    ):
        await fetched(f"http://{named}/", named)
    # `host` is an address of this machine that the configuration names, at one port.
    with pytest.raises(InvalidImage, match=f"{name}.example, which leads to "):
        await fetched(f"http://{host}/302/to/http://{name}.example/", f"{name}.example", host)
    assert [path for path, _ in Handler.asked] == [f"/302/to/http://{name}.example/"]


async def test_a_name_is_looked_up_once_and_its_host_is_told_it(host: str, asked_names: list[str]) -> None:
    """Between two answers a name may change to an address of this machine."""
    named = f"127-0-0-1.example:{host.partition(':')[2]}"
    assert await fetched(f"http://{named}/a.png", named, host) == FILE
    assert asked_names == ["127-0-0-1.example"]
    assert Handler.asked[0][1]["host"] == named


async def test_a_name_that_nobody_knows() -> None:
    with pytest.raises(InvalidImage, match=r"cannot be fetched: nowhere\.invalid is not known"):
        await fetched("http://nowhere.invalid/", "nowhere.invalid")


async def test_a_host_that_sends_nothing(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FETCH_S", 0.2)
    with pytest.raises(InvalidImage, match=r"within 0\.2 s"):
        await fetched(f"http://{host}/stalls", host)


async def test_a_host_that_is_not_there() -> None:
    with pytest.raises(InvalidImage, match="cannot be fetched"):
        await fetched("http://127.0.0.1:9/", "127.0.0.1:9")
