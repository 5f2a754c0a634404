"""The engine's events of one answer as bytes, from which any worker, or another server, can go on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

import msgspec

from jan_serve.ipc.messages import EngineEvent

_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(EngineEvent).decode


class AnswerLog:
    """Grows with the answer. An answer that begins with a log repeats its events, and then goes on."""

    def __init__(self, past: Iterable[bytes] = (), on_add: Callable[[bytes], None] | None = None) -> None:
        """past: what another log has added. on_add: takes each new event in addition."""
        self._events = list(past)
        self._on_add = on_add
        self.size = sum(map(len, self._events))
        """Bytes of all events."""

    def __iter__(self) -> Iterator[EngineEvent]:
        """The events of the past. Those that are added meanwhile do not follow."""
        return map(_decode, tuple(self._events))

    def add(self, event: EngineEvent) -> None:
        data = _encode(event)
        self.size += len(data)
        self._events.append(data)
        if self._on_add is not None:
            self._on_add(data)
