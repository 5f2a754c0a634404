"""The queue of one request's events, between the worker's pipe and the task that reads them.

It is bounded but never blocks the worker: while the reader is slow, the chunks of a sequence merge, so that it holds at
most one chunk per sequence and the few events that come once. The context length bounds text and tokens.
"""

from __future__ import annotations

import asyncio
from collections import deque

from jan_serve.errors import JanServeError
from jan_serve.ipc.messages import Chunk, EngineEvent


def _merged(chunks: list[Chunk]) -> Chunk:
    """Unread chunks of one sequence as one."""
    first, *more = chunks
    if not more:
        return first
    texts = "".join(chunk.text for chunk in chunks)
    tokens = tuple(token for chunk in chunks for token in chunk.tokens)
    ids = tuple(each for chunk in chunks for each in chunk.ids)
    draws = next((chunk.draws for chunk in reversed(more) if chunk.ids), first.draws)
    return Chunk(first.index, texts, tokens, id=first.id, ids=ids, draws=draws)


class EventQueue:
    """One writer (the event loop's callback), one reader."""

    def __init__(self) -> None:
        self._events: deque[EngineEvent | list[Chunk]] = deque()
        self._open_chunks: dict[int, list[Chunk]] = {}
        self._failure: JanServeError | None = None
        self._arrived = asyncio.Event()

    def __len__(self) -> int:
        return len(self._events)

    def put(self, event: EngineEvent) -> None:
        """Keeps the order within a sequence; a chunk may overtake events of other sequences."""
        if isinstance(event, Chunk):
            chunks = self._open_chunks.get(event.index)
            if chunks is not None:
                chunks.append(event)
                return
            chunks = self._open_chunks[event.index] = [event]
            self._events.append(chunks)
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
        if isinstance(event, list):
            del self._open_chunks[event[0].index]
            return _merged(event)
        return event
