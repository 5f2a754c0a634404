"""Workers that are dictionaries, and links made by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from jan_serve.errors import JanServeError
from jan_serve.ipc.messages import ReadState, StatePart, StateStored, StoreState

STATE = bytes(range(256)) * 12_000  # three parts
SESSION = 7
STORED = 1000


@dataclass
class FakeWorker:
    """Keeps bytes; `fail` makes it answer with an error from that offset on."""

    name: str = "fake"
    states: dict[int, bytearray] = field(default_factory=dict[int, bytearray])
    fail: JanServeError | None = None
    fail_at: int = 0

    async def ask(self, request: Any) -> Any:
        if isinstance(request, ReadState):
            return await self.read_state(request)
        return await self.store_state(request)

    async def read_state(self, request: ReadState) -> StatePart:
        await asyncio.sleep(0)
        if self.fail is not None and request.offset >= self.fail_at:
            raise self.fail
        data = self.states[request.state]
        part = bytes(data[request.offset : request.offset + request.length])
        return StatePart(id=request.id, data=part, total=len(data))

    async def store_state(self, request: StoreState) -> StateStored:
        await asyncio.sleep(0)
        if self.fail is not None and request.offset >= self.fail_at:
            raise self.fail
        data = self.states.setdefault(request.state, bytearray())
        assert len(data) == request.offset
        data += request.data
        return StateStored(request.id, len(data))

    def drop_state(self, state: int) -> None:
        self.states.pop(state, None)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.001)
