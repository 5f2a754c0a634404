"""Streams that a client can take up again after its line broke, as the event streams of browsers do.

Each event has an `id`: the answer's token and its number. The same request with `Last-Event-ID` goes on behind it.
What was written is repeated; the rest comes from the engine, which stops while there is no client.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterator
from hashlib import blake2b
from typing import Any, Final, cast

import msgspec
from starlette.requests import Request

from jan_serve.core.caller import cache_salt
from jan_serve.core.closing import closing
from jan_serve.core.events import GenerationEvent
from jan_serve.core.transcript import Asked, Transcript, current, started_s
from jan_serve.dialects.shared.answers import Chunks, Events
from jan_serve.errors import EngineFailure, InvalidRequest
from jan_serve.http.replies import frame

LAST_EVENT: Final = "last-event-id"
_MAX_BYTES: Final = 64 << 20
"""Bytes of all logs together. Where there is no room, one of the key that has most goes and is not taken up again."""
_MAX_INLINE_BYTES: Final = 1 << 20
"""Most bytes of a body that is hashed on the event loop."""
_TOKEN_BYTES: Final = 12
_MAX_NUMBER: Final = 9
"""Digits of an event's number."""


class _Kept(msgspec.Struct):
    """An answer. weights, log: see Transcript. turn: how many connections have had it. left: when the last of them
    ended; None while it is open."""

    token: str
    owner: str
    digest: bytes
    created: int
    weights: str = ""
    log: list[bytes] = msgspec.field(default_factory=list[bytes])
    size: int = 0
    turn: int = 0
    left: float | None = None


class ResumedStream:
    """One connection's part of an answer. after: number of the last known event."""

    def __init__(self, streams: ResumableStreams, kept: _Kept, after: int) -> None:
        kept.turn += 1
        kept.left = None
        log = b"".join(kept.log)
        # The answer's ids, seed and time derive from it.
        self.transcript = Transcript(Asked(kept.token, kept.created, kept.weights, len(log)), log)
        self._streams = streams
        self._kept = kept
        self._turn = kept.turn
        self._after = after
        self._number = -1

    async def events(self, events: Events) -> AsyncGenerator[GenerationEvent]:
        """The same, kept before a client has them. Their end begins the time for which the answer is kept."""
        try:
            async with closing(events):
                async for event in events:
                    if self._kept.turn != self._turn:
                        raise EngineFailure("Another connection has taken up this answer.")
                    self._streams.keep(self._kept, self.transcript)
                    yield event
        finally:
            if self._kept.turn == self._turn:
                self._streams.leave(self._kept)

    def chunks(self, chunks: Chunks) -> Chunks:
        """Those behind the last known event, with their numbers; see `framed`."""

        def numbered(event: GenerationEvent) -> Iterator[tuple[int, object]]:
            for chunk in chunks(event):
                self._number += 1
                if self._number > self._after:
                    yield self._number, chunk

        return numbered

    def framed(self, value: Any) -> bytes:
        """An event with its `id`, or an error, which has none: what follows it is not known."""
        if not isinstance(value, tuple):
            return frame(value)
        number, chunk = cast(tuple[int, object], value)
        # Behind the data, since some readers of streams take the first line for it.
        return frame(chunk)[:-1] + f"id: {self._kept.token}:{number}\n\n".encode()


class ResumableStreams:
    """Event loop only. Not persistent."""

    def __init__(self, keep_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        """keep_s: how long after its connection; 0 gives events no id."""
        self._keep_s = keep_s
        self._clock = clock
        self._kept: dict[str, _Kept] = {}
        self._size = 0

    async def opened(self, request: Request) -> ResumedStream | None:
        """The stream of this request, or what is left of an earlier one; None if streams have no ids.

        Raises InvalidRequest for an event that is unknown, or of another request.
        """
        last = request.headers.get(LAST_EVENT)
        if (
            not self._keep_s or current.get() is not None
        ):  # a proxy keeps the answer, and any node goes on with it
            if last:
                raise _unknown("no stream is kept behind a proxy, or where `resume_s` is 0")
            return None
        self._forget()
        owner, digest = cache_salt.get(), await _digest(await request.body())
        kept, after = self._find(last, owner, digest) if last else (None, -1)
        if kept is None:
            token = secrets.token_urlsafe(_TOKEN_BYTES)
            kept = self._kept[token] = _Kept(token, owner, digest, started_s())
        resumed = ResumedStream(self, kept, after)
        current.set(resumed.transcript)
        return resumed

    def _find(self, last: str, owner: str, digest: bytes) -> tuple[_Kept, int]:
        token, _, number = last.rpartition(":")
        kept = self._kept.get(token)
        is_number = number.isascii() and number.isdigit() and len(number) <= _MAX_NUMBER
        if kept is None or kept.owner != owner or not is_number:
            raise _unknown(f"it is none of this server, or ended more than {self._keep_s:g} s ago")
        if kept.digest != digest:
            raise _unknown("its answer is that of another request: send the same body")
        return kept, int(number)

    def keep(self, kept: _Kept, transcript: Transcript) -> None:
        """Keep the events that are new."""
        events = transcript.take()
        if kept.token not in self._kept:
            return
        kept.weights = transcript.weights
        kept.log.append(events)
        kept.size += len(events)
        self._size += len(events)
        while self._size > _MAX_BYTES:
            sizes = Counter[str]()
            for each in self._kept.values():
                sizes[each.owner] += each.size
            ((fullest, _),) = sizes.most_common(1)
            own = [each for each in self._kept.values() if each.owner == fullest and each.size]
            self._drop(next((each for each in own if each.left is not None), own[-1]))

    def leave(self, kept: _Kept) -> None:
        """Its last connection has ended."""
        kept.left = self._clock()

    def _forget(self) -> None:
        before = self._clock() - self._keep_s
        for kept in [each for each in self._kept.values() if each.left is not None and each.left < before]:
            self._drop(kept)

    def _drop(self, kept: _Kept) -> None:
        self._kept.pop(kept.token, None)
        self._size -= kept.size
        kept.size = 0


async def _digest(body: bytes) -> bytes:
    if len(body) > _MAX_INLINE_BYTES:
        return await asyncio.to_thread(lambda: blake2b(body, digest_size=16).digest())
    return blake2b(body, digest_size=16).digest()


def _unknown(reason: str) -> InvalidRequest:
    return InvalidRequest(
        f"Last-Event-ID: there is nothing to go on with: {reason}. Without this header the answer begins anew.",
        param=LAST_EVENT,
    )
