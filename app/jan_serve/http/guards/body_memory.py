"""The memory of all request bodies together. Event loop only."""

from __future__ import annotations

import asyncio
import ctypes
import sys
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from jan_serve.errors import Unavailable

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
    """Bounds the bytes of request bodies. Above a bound, the bodies of the client that has sent most go first."""

    def __init__(self, max_arriving: int = MAX_ARRIVING_BYTES, max_held: int = MAX_HELD_BYTES) -> None:
        self.held = 0
        self._max_arriving = max_arriving
        self._max_held = max_held
        self._arriving: dict[HeldBody, None] = {}  # the oldest first
        self._trimming: asyncio.TimerHandle | None = None

    @property
    def is_full(self) -> bool:
        return self.held > self._max_held

    def open(self, address: str) -> HeldBody:
        """Begin to count a body of the client at `address`."""
        return HeldBody(self, address)

    def arrives(self, body: HeldBody) -> None:
        self._arriving.setdefault(body)

    def arrived(self, body: HeldBody) -> None:
        """It has come to its end, or is not waited for."""
        self._arriving.pop(body, None)

    def make_room(self) -> None:
        """Refuse unfinished bodies until all is within the bounds, as far as there are any."""
        while self.is_full or sum(body.size for body in self._arriving) > self._max_arriving:
            by_client: Counter[str] = Counter()
            for body in self._arriving:
                by_client[body.address] += body.size
            large = [body for body in self._arriving if body.size > SMALL_BYTES]
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
        self._memory.arrives(self)
        self._add(size)
        self.check()

    def complete(self) -> None:
        """Its last part has come."""
        self._memory.arrived(self)

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
        self._memory.arrived(self)
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
