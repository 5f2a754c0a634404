"""The queue of one request's events, between the worker's pipe and the task that reads them.

It is bounded but never blocks the worker: while the reader is slow, the chunks of a sequence merge, so that it holds at
most one chunk per sequence and the few events that come once. The context length bounds text and tokens.
"""

from __future__ import annotations

import asyncio
from collections import deque

from jan_serve.core.events import TokenInfo
from jan_serve.errors import JanServeError
from jan_serve.ipc.messages import Chunk, EngineEvent


class _Merged:
    """Unread chunks of one sequence."""

    def __init__(self, first: Chunk) -> None:
        self._first = first
        self._texts = [first.text]
        self._tokens: list[TokenInfo] = list(first.tokens)
        self._ids: list[int] = list(first.ids)
        self._draws = first.draws

    def add(self, chunk: Chunk) -> None:
        self._texts.append(chunk.text)
        self._tokens.extend(chunk.tokens)
        if chunk.ids:
            self._ids.extend(chunk.ids)
            self._draws = chunk.draws

    def chunk(self) -> Chunk:
        if len(self._texts) == 1:
            return self._first
        text, tokens, ids = "".join(self._texts), tuple(self._tokens), tuple(self._ids)
        return Chunk(self._first.index, text, tokens, id=self._first.id, ids=ids, draws=self._draws)


class EventQueue:
    """One writer (the event loop's callback), one reader."""

    def __init__(self) -> None:
        self._events: deque[EngineEvent | _Merged] = deque()
        self._open_chunks: dict[int, _Merged] = {}
        self._failure: JanServeError | None = None
        self._arrived = asyncio.Event()

    def __len__(self) -> int:
        return len(self._events)

    def put(self, event: EngineEvent) -> None:
        """Keeps the order within a sequence; a chunk may overtake events of other sequences."""
        if isinstance(event, Chunk):
            merged = self._open_chunks.get(event.index)
            if merged is not None:
                merged.add(event)
                return
            merged = _Merged(event)
            self._open_chunks[event.index] = merged
            self._events.append(merged)
        else:
            self._events.append(event)
        self._arrived.set()

    def fail(self, error: JanServeError) -> None:
        """No more events come. Queued events are still read first; the first failure stays."""
        if self._failure is None:
            self._failure = error
            self._arrived.set()

    async def get(self) -> EngineEvent:
        """Wait for the next event. Raises the failure once the queue is empty."""
        while not self._events:
            if self._failure is not None:
                raise self._failure
            self._arrived.clear()
            await self._arrived.wait()
        event = self._events.popleft()
        if isinstance(event, _Merged):
            chunk = event.chunk()
            del self._open_chunks[chunk.index]
            return chunk
        return event
