"""httptools' parser for a server with HTTP/1.1 only, which ignores `Upgrade`.

A server may ignore it (RFC 9110, section 7.8). llhttp instead stops after the head of such a request, as if the
connection changed its protocol, so the body would be parsed as the next request: it would be lost, and requests inside
it would be answered. Java's HttpClient offers `h2c` with its first request.
"""

from __future__ import annotations

from typing import Final

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_FRAMING: Final = frozenset({b"content-length", b"transfer-encoding"})


class RequestParser:
    """`httptools.HttpRequestParser` without upgrades, as far as uvicorn uses it."""

    def __init__(self, callbacks: HttpToolsProtocol) -> None:
        self._callbacks = callbacks
        self._framing: list[bytes] = []
        self._suppressed = False
        self._in_head = False
        self._parser = self._new()

    def feed_data(self, data: bytes | memoryview) -> None:
        """Raises httptools.HttpParserError."""
        while True:
            try:
                self._parser.feed_data(data)
                return
            except httptools.HttpParserUpgrade as upgrade:
                offset: int = upgrade.args[0]
                data = data[offset:]
                self._resume_after_head()

    def _new(self) -> httptools.HttpRequestParser:
        parser = httptools.HttpRequestParser(self)
        # As uvicorn: data after a request with `Connection: close` is not an error in that request.
        parser.set_dangerous_leniencies(lenient_data_after_close=True)
        return parser

    def _resume_after_head(self) -> None:
        """Continue with a new parser that has read a head with the same framing, whose callbacks are suppressed."""
        head = b"POST / HTTP/1.1\r\n" + b"".join(self._framing) + b"\r\n"
        self._parser = self._new()
        self._suppressed = True
        self._parser.feed_data(head)

    def get_http_version(self) -> str:
        return self._parser.get_http_version()

    def get_method(self) -> bytes:
        return self._parser.get_method()

    def should_keep_alive(self) -> bool:
        return self._parser.should_keep_alive()

    def should_upgrade(self) -> bool:
        return False

    def on_message_begin(self) -> None:
        if self._suppressed:
            return
        self._framing.clear()
        self._in_head = True
        self._callbacks.on_message_begin()

    def on_url(self, url: bytes) -> None:
        if not self._suppressed:
            self._callbacks.on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        # Trailers are dropped: no guard checks them as it checks the fields of a head.
        if self._suppressed or not self._in_head:
            return
        if name.lower() in _FRAMING:
            self._framing.append(name + b": " + value + b"\r\n")
        self._callbacks.on_header(name, value)

    def on_headers_complete(self) -> None:
        if not self._suppressed:
            self._in_head = False
            self._callbacks.on_headers_complete()
        self._suppressed = False

    def on_body(self, body: bytes) -> None:
        self._callbacks.on_body(body)

    def on_message_complete(self) -> None:
        # An upgrade is where llhttp stops, not the end of the message.
        if not self._parser.should_upgrade():
            self._callbacks.on_message_complete()
