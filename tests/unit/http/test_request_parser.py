"""The parser of requests: an offer of another protocol changes nothing, wherever the bytes are cut."""

from __future__ import annotations

from typing import Any

import httptools
import pytest

from jan_serve.http.request_parser import RequestParser

UPGRADE = b"Connection: Upgrade\r\nUpgrade: h2c\r\n"
INSIDE = b"GET /inside HTTP/1.1\r\nHost: a\r\n"
WHOLE = b"GET /next HTTP/1.1\r\nHost: a\r\n\r\n"
FRAMINGS = {
    "none": (b"", b"", b""),
    "empty": (b"Content-Length: 0\r\n", b"", b""),
    "length": (b"content-length: 30\r\n", INSIDE[:30], INSIDE[:30]),
    "chunks": (b"Transfer-Encoding: chunked\r\n", b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n", b"abcde"),
}  # fmt: skip


class Heard:
    """Requests as they were told: target, header names, body; and whether each was complete."""

    def __init__(self) -> None:
        self.requests: list[tuple[bytes, list[bytes], bytes]] = []
        self.complete = 0
        self._target = b""
        self._names: list[bytes] = []
        self._body = b""

    def on_message_begin(self) -> None:
        self._target, self._names, self._body = b"", [], b""

    def on_url(self, url: bytes) -> None:
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._names.append(name)

    def on_headers_complete(self) -> None:
        self.requests.append((self._target, self._names, b""))

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        self.requests[-1] = (*self.requests[-1][:2], self._body)
        self.complete += 1


@pytest.mark.parametrize("name", FRAMINGS)
@pytest.mark.parametrize("method", [b"POST /first", b"CONNECT a:80"], ids=["post", "connect"])
def test_requests_with_an_offer_are_read_as_others(name: str, method: bytes) -> None:
    framing, sent, body = FRAMINGS[name]
    data = method + b" HTTP/1.1\r\nHost: a\r\n" + UPGRADE + framing + b"\r\n" + sent + WHOLE
    names = [b"Host", b"Connection", b"Upgrade"] + [framing.split(b":")[0]] * bool(framing)
    for cut in range(len(data)):
        heard: Any = Heard()
        parser = RequestParser(heard)
        for part in (data[:cut], data[cut:]):
            parser.feed_data(part)
        assert heard.requests == [(method.split()[1], names, body), (b"/next", [b"Host"], b"")], cut
        assert heard.complete == 2
        assert not parser.should_upgrade()


@pytest.mark.parametrize("offer", [b"", UPGRADE], ids=["plain", "upgrade"])
def test_trailers_are_no_headers(offer: bytes) -> None:
    chunked = b"Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nX-Late: 1\r\nHost: b\r\n\r\n"
    heard: Any = Heard()
    RequestParser(heard).feed_data(b"POST / HTTP/1.1\r\n" + offer + chunked + WHOLE)
    names = [line.split(b":")[0] for line in offer.split(b"\r\n")[:-1]]
    assert heard.requests == [(b"/", [*names, b"Transfer-Encoding"], b"a"), (b"/next", [b"Host"], b"")]


@pytest.mark.parametrize(
    "bad",
    [
        b"POST / HTTP/1.1\r\n" + UPGRADE + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"POST / HTTP/1.1\r\n" + UPGRADE + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"POST / HTTP/1.1\r\n" + UPGRADE + b"Content-Length: 1\r\n\r\nab / HTTP/1.1\r\n\r\n",
    ],
    ids=["two framings", "bad chunk", "no request behind it"],
)
def test_what_is_no_request_is_none_with_an_offer_either(bad: bytes) -> None:
    ignored: Any = Heard()
    with pytest.raises(httptools.HttpParserError):
        RequestParser(ignored).feed_data(bad)
