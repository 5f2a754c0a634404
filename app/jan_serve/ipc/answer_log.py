"""The engine's events of one answer as bytes, from which any worker, or another server, can go on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import msgspec

from jan_serve.ipc.messages import EngineEvent

_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(EngineEvent).decode


class AnswerLog:
    """An answer that begins with a log repeats its events, and then goes on."""

    def __init__(self, past: Sequence[bytes], on_add: Callable[[bytes], None]) -> None:
        """past: what another log has added. on_add: takes each new event."""
        self._past = past
        self._on_add = on_add

    def __iter__(self) -> Iterator[EngineEvent]:
        """The events of the past."""
        return map(_decode, self._past)

    def add(self, event: EngineEvent) -> None:
        self._on_add(_encode(event))
