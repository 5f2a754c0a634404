"""httptools' parser for a server that speaks HTTP/1.1 only: `Upgrade` is a header like any other.

A server may ignore it (RFC 9110, section 7.8). llhttp stops behind the head of such a request instead, as if the
connection spoke another protocol from there on, and what follows would be read as the next request: the body would be
lost, and requests inside of it would be answered. Java's HttpClient offers `h2c` with its first request.
"""

from __future__ import annotations

from typing import Final, Protocol

import httptools

_FRAMING: Final = frozenset({b"content-length", b"transfer-encoding"})


class Callbacks(Protocol):
    """What a parser calls, in the order of a request."""

    def on_message_begin(self) -> None:
        """Before the first line."""
        ...

    def on_url(self, url: bytes) -> None:
        """A part of the target."""
        ...

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header."""
        ...

    def on_headers_complete(self) -> None:
        """Behind the head."""
        ...

    def on_body(self, body: bytes) -> None:
        """A part of the body."""
        ...

    def on_message_complete(self) -> None:
        """Behind the body."""
        ...


class RequestParser:
    """`httptools.HttpRequestParser` without upgrades, as far as uvicorn uses it."""

    def __init__(self, callbacks: Callbacks) -> None:
        self._callbacks = callbacks
        self._framing: list[bytes] = []
        self._heard = False
        self._in_head = False
        self._parser = self._new()

    def feed_data(self, data: bytes | memoryview) -> None:
        """Parse on. Raises httptools.HttpParserError for what is no request."""
        while True:
            try:
                self._parser.feed_data(data)
                return
            except httptools.HttpParserUpgrade as upgrade:
                offset: int = upgrade.args[0]
                data = data[offset:]
                self._go_on_behind_the_head()

    def _new(self) -> httptools.HttpRequestParser:
        parser = httptools.HttpRequestParser(self)
        # As uvicorn: requests behind one that wants the connection closed are no error of that one.
        parser.set_dangerous_leniencies(lenient_data_after_close=True)
        return parser

    def _go_on_behind_the_head(self) -> None:
        """A parser that has read a head with the same framing, and tells of what follows only."""
        head = b"POST / HTTP/1.1\r\n" + b"".join(self._framing) + b"\r\n"
        self._parser = self._new()
        self._heard = True
        self._parser.feed_data(head)

    def get_http_version(self) -> str:
        """As httptools."""
        return self._parser.get_http_version()

    def get_method(self) -> bytes:
        """As httptools."""
        return self._parser.get_method()

    def should_keep_alive(self) -> bool:
        """As httptools."""
        return self._parser.should_keep_alive()

    def should_upgrade(self) -> bool:
        """Never."""
        return False

    def on_message_begin(self) -> None:
        """See Callbacks."""
        if self._heard:
            return
        self._framing.clear()
        self._in_head = True
        self._callbacks.on_message_begin()

    def on_url(self, url: bytes) -> None:
        """See Callbacks."""
        if not self._heard:
            self._callbacks.on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """See Callbacks. Not of trailers: nobody checks them as the fields of a head are."""
        if self._heard or not self._in_head:
            return
        if name.lower() in _FRAMING:
            self._framing.append(name + b": " + value + b"\r\n")
        self._callbacks.on_header(name, value)

    def on_headers_complete(self) -> None:
        """See Callbacks."""
        if not self._heard:
            self._in_head = False
            self._callbacks.on_headers_complete()
        self._heard = False

    def on_body(self, body: bytes) -> None:
        """See Callbacks."""
        self._callbacks.on_body(body)

    def on_message_complete(self) -> None:
        """See Callbacks. Where llhttp is about to stop, the message is not complete."""
        if not self._parser.should_upgrade():
            self._callbacks.on_message_complete()
