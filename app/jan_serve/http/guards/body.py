"""Limits on request bodies: JSON only (but for files), not compressed, of bounded size, time, and memory together."""

from __future__ import annotations

import asyncio
import ctypes
import re
import sys
from collections import Counter
from collections.abc import Generator, Iterable
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from http import HTTPStatus
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from jan_serve.errors import Unavailable
from jan_serve.http.errors import Envelopes, HttpError, closing_problem, draining_problem, http_problem
from jan_serve.http.guards.guard import SAFE_METHODS, Guard, header_values
from jan_serve.http.lifecycle import Lifecycle
from jan_serve.http.paths import is_below

MAX_ARRIVING_BYTES: Final = 256 << 20
"""Limit of all bodies that are still arriving: eight of the largest that the default settings admit."""

MAX_HELD_BYTES: Final = 1 << 30
"""Limit of all bodies whose requests are open, with the files fetched for them: 64 requests with 16 MiB of screenshots
each."""

SMALL_BYTES: Final = 64 << 10
"""Bodies up to this are never refused: those of all connections together are few MiB."""

RETRY_AFTER_S: Final = 2.0
_TRIM_BYTES: Final = 4 << 20
_TRIM_AFTER_S: Final = 1.0


class BodyMemory:
    """Bounds the bytes of request bodies. Above a bound, the bodies of the client that has sent most go first.

    Event loop only.
    """

    def __init__(self, max_arriving: int = MAX_ARRIVING_BYTES, max_held: int = MAX_HELD_BYTES) -> None:
        self.held = 0
        self._max_arriving = max_arriving
        self._max_held = max_held
        self.arriving: dict[HeldBody, None] = {}  # the oldest first
        self._trimming: asyncio.TimerHandle | None = None

    @property
    def is_full(self) -> bool:
        return self.held > self._max_held

    def open(self, address: str) -> HeldBody:
        """Begin to count a body of the client at `address`."""
        return HeldBody(self, address)

    def make_room(self) -> None:
        """Refuse unfinished bodies until all is within the bounds, as far as there are any."""
        while self.is_full or sum(body.size for body in self.arriving) > self._max_arriving:
            by_client: Counter[str] = Counter()
            for body in self.arriving:
                by_client[body.address] += body.size
            large = [body for body in self.arriving if body.size > SMALL_BYTES]
            if not large:
                return
            most = max(by_client[body.address] for body in large)
            next(body for body in large if by_client[body.address] == most).refuse()

    def returned(self, size: int) -> None:
        """Memory of a body is free: give it back to the system soon."""
        if size >= _TRIM_BYTES and self._trimming is None:
            self._trimming = asyncio.get_running_loop().call_later(_TRIM_AFTER_S, self._trim)

    def _trim(self) -> None:
        self._trimming = None
        asyncio.get_running_loop().run_in_executor(None, trim_memory)


class HeldBody:
    def __init__(self, memory: BodyMemory, address: str) -> None:
        self.address = address
        self.size = 0
        self.is_refused = False
        self._memory = memory
        self._waiting: asyncio.Timeout | None = None

    @contextmanager
    def waiting(self, timeout: asyncio.Timeout) -> Generator[None]:
        """A part is awaited while the block runs, within this running timeout. A refusal lets it expire."""
        self._waiting = timeout
        try:
            yield
        finally:
            self._waiting = None

    def receive(self, size: int) -> None:
        """A part has come. Raises Unavailable if this body has to go."""
        self.check()
        self._memory.arriving.setdefault(self)
        self._add(size)
        self.check()

    def complete(self) -> None:
        """Its last part has come."""
        self._memory.arriving.pop(self, None)

    def fetch(self, size: int) -> None:
        """Count bytes that the request needs besides its body. Raises Unavailable where there is no room for them."""
        self._add(size)
        if self._memory.is_full:
            raise _no_room()

    def check(self) -> None:
        """Raises Unavailable for a body that was refused."""
        if self.is_refused:
            raise _no_room()

    def refuse(self) -> None:
        self.is_refused = True
        self.close()
        if self._waiting is not None and not self._waiting.expired():
            self._waiting.reschedule(0.0)

    def close(self) -> None:
        """The request is over, or holds nothing any more."""
        self._memory.arriving.pop(self, None)
        self._memory.held -= self.size
        self._memory.returned(self.size)
        self.size = 0

    def _add(self, size: int) -> None:
        self.size += size
        self._memory.held += size
        self._memory.make_room()


held_body: Final[ContextVar[HeldBody | None]] = ContextVar("held_body", default=None)
"""The body of the request that this task serves."""


def _no_room() -> Unavailable:
    return Unavailable(
        "The server receives more data than it has memory for; send the request again.",
        retry_after=RETRY_AFTER_S,
    )


def trim_memory() -> None:
    """Give free memory back to the system. glibc keeps it below the highest block in use; others do not."""
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)


BODY_TIMEOUT_S: Final = 30.0
BYTES_PER_EXTRA_S: Final = 1 << 20
"""Received bytes that earn another second: a body that trickles earns none."""

MAX_UPLOAD_BYTES: Final = 1 << 40

_CLOSE: Final = {"connection": "close"}


class BodyGuard(Guard):
    """Rejects a body by its headers or while it is read, so chunked bodies have the same limits.

    The bodies of all requests have a limit together (`BodyMemory`), but for uploads, which go to the disk.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        envelopes: Envelopes,
        lifecycle: Lifecycle,
        max_bytes: int,
        upload_paths: Iterable[str] = (),
        form_paths: Iterable[str] = (),
        memory: BodyMemory | None = None,
    ) -> None:
        """upload_paths, form_paths: see Dialect. memory: None makes one."""
        super().__init__(app, envelopes)
        self._max_bytes = max_bytes
        self._lifecycle = lifecycle
        self._memory = memory or BodyMemory()
        self._upload_paths = tuple(upload_paths)
        self._form_paths = tuple(form_paths)
        self._typed_paths = (*self._upload_paths, *self._form_paths)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await super().__call__(scope, receive, send)
            return
        client = scope.get("client")
        held = self._memory.open(client[0] if client is not None else "")
        held_body.set(held)
        is_upload = is_below(scope["path"], self._upload_paths)
        limited = _LimitedBody(receive, self._max_of(scope), self._lifecycle, None if is_upload else held)
        try:
            await super().__call__(scope, limited, send)
        finally:
            held.close()

    def _max_of(self, scope: Scope) -> int:
        return MAX_UPLOAD_BYTES if is_below(scope["path"], self._upload_paths) else self._max_bytes

    def check(self, scope: Scope) -> None:
        """Raises 413 or 415. Bodies of programs get the type of JSON (`curl -d` has another), not those of pages."""
        lengths = header_values(scope, b"content-length")
        limit = self._max_of(scope)
        if any(value.isdigit() and int(value[:20]) > limit for value in lengths):
            raise too_large(limit)
        encodings = header_values(scope, b"content-encoding")
        if any(value.strip().lower() not in (b"", b"identity") for value in encodings):
            raise _wrong_type("Compressed bodies are not accepted.")
        if scope["method"] in SAFE_METHODS:
            return
        types = header_values(scope, b"content-type")
        is_json = len(types) == 1 and bool(_JSON.match(types[0]))
        if not _is_from_page(scope):
            if not is_json and not is_below(scope["path"], self._typed_paths):
                others = [header for header in scope["headers"] if header[0] != b"content-type"]
                scope["headers"] = [*others, (b"content-type", b"application/json")]
            return
        if len(types) == 1 and _is_form(types[0]) and is_below(scope["path"], self._form_paths):
            return
        # Web pages can send any other type without a preflight (CORS-safelisted types).
        has_body = bool(header_values(scope, b"transfer-encoding")) or any(value != b"0" for value in lengths)
        if (types and not is_json) or (has_body and not types):
            raise _wrong_type("The body must be JSON, with the header `Content-Type: application/json`.")


class _LimitedBody:
    """An ASGI receive that raises HttpError if the body is too long or slow, or not complete when a drain begins."""

    def __init__(self, receive: Receive, max_bytes: int, lifecycle: Lifecycle, held: HeldBody | None) -> None:
        """held: None for a body that is not kept in memory."""
        self._receive = receive
        self._max_bytes = max_bytes
        self._lifecycle = lifecycle
        self._held = held
        self._began_in_drain = lifecycle.draining
        self._until: float | None = None
        self._size = 0
        self._complete = False

    async def __call__(self) -> Message:
        if self._complete:
            return await self._receive()
        self._check()
        if self._until is None:
            self._until = asyncio.get_running_loop().time() + BODY_TIMEOUT_S
        try:
            async with asyncio.timeout_at(self._until) as timeout:
                waiting = self._held.waiting(timeout) if self._held else nullcontext()
                with self._lifecycle.body(timeout), waiting:
                    message = await self._receive()
        except TimeoutError:
            self._check()
            raise http_problem(
                HTTPStatus.REQUEST_TIMEOUT, "request_timeout", "The body took too long to arrive.", _CLOSE
            ) from None
        if message["type"] == "http.request":
            size = len(message.get("body", b""))
            self._size += size
            self._until += size / BYTES_PER_EXTRA_S
            self._complete = not message.get("more_body", False)
            if self._size > self._max_bytes:
                raise too_large(self._max_bytes)
            self._count(size)
        return message

    def _check(self) -> None:
        """Raises 503 if the rest of the body is not to be read."""
        if self._lifecycle.draining and not self._began_in_drain:
            raise HttpError(draining_problem())
        if self._held is not None and self._held.is_refused:
            self._count(0)

    def _count(self, size: int) -> None:
        """Raises 503 if there is no memory for the body."""
        if self._held is None:
            return
        try:
            self._held.receive(size)
        except Unavailable as error:
            raise HttpError(closing_problem(error)) from None
        if self._complete:
            self._held.complete()


def too_large(max_bytes: int) -> HttpError:
    """413. The connection closes, because the rest of the body may be unread."""
    return http_problem(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        "body_too_large",
        f"The body is longer than {max_bytes} bytes, the limit of this server.",
        _CLOSE,
    )


def _wrong_type(message: str) -> HttpError:
    return http_problem(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", message)


def _is_from_page(scope: Scope) -> bool:
    """Browsers send one of these with every request of a page that has a body."""
    return bool(header_values(scope, b"origin") or header_values(scope, b"sec-fetch-site"))


_JSON: Final = re.compile(rb"\s*application/(?:json|[^;]*\+json)\s*(?:;|\Z)", re.I)
"""`application/json` or `application/…+json`, with any parameters."""


def _is_form(value: bytes) -> bool:
    return value.split(b";", 1)[0].strip().lower() == b"multipart/form-data"
