"""States that this server's workers keep for other servers: who has them, by which number, and for how long."""

from __future__ import annotations

import asyncio
import itertools
import logging
from typing import Protocol

from jan_serve.ipc.messages import ReadState, StatePart, StateStored, StoreState

logger = logging.getLogger(__name__)


class StateHolder(Protocol):
    """A client of the worker that holds a state. `WorkerEngineClient`; callers know `generation.ports.EngineClient`."""

    def next_id(self) -> int: ...
    async def read_state(self, request: ReadState) -> StatePart: ...
    async def store_state(self, request: StoreState) -> StateStored: ...
    def drop_state(self, state: int) -> None: ...


class KeptState:
    """A state in a worker. `session` is what others ask for it by, once it is known."""

    def __init__(self, owner: StateHolder, state: int) -> None:
        self.owner = owner
        self.state = state
        self.session: int | None = None
        self.timer: asyncio.TimerHandle | None = None


class KeptStates:
    """All of them. Each is dropped when it is freed, or when nobody came for it. Event loop only."""

    def __init__(self, keep_s: float) -> None:
        self._keep_s = keep_s
        self._handles = itertools.count(1)
        self._by_handle: dict[int, KeptState] = {}
        self._by_session: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._by_handle)

    def add(self, owner: StateHolder, state: int) -> int:
        """Take over a state that a worker keeps. Returns a handle."""
        handle = next(self._handles)
        kept = self._by_handle[handle] = KeptState(owner, state)
        kept.timer = asyncio.get_running_loop().call_later(self._keep_s, self._expire, handle)
        return handle

    def bind(self, handle: int, session: int) -> None:
        """Others will ask for it by this number. What had the number before is dropped."""
        kept = self._by_handle.get(handle)
        if kept is None:
            return
        self.free(session)
        kept.session = session
        self._by_session[session] = handle

    def find(self, session: int) -> KeptState | None:
        """What is kept of a session."""
        handle = self._by_session.get(session)
        return None if handle is None else self._by_handle[handle]

    def free(self, session: int) -> bool:
        """Drop what is kept of a session; False where that is nothing."""
        handle = self._by_session.get(session)
        return handle is not None and self.drop(handle)

    def drop(self, handle: int) -> bool:
        """Drop one; False where it is gone already."""
        kept = self._by_handle.pop(handle, None)
        if kept is None:
            return False
        if kept.timer is not None:
            kept.timer.cancel()
        if kept.session is not None and self._by_session.get(kept.session) == handle:
            del self._by_session[kept.session]
        kept.owner.drop_state(kept.state)
        return True

    def clear(self) -> None:
        """Drop all."""
        for handle in list(self._by_handle):
            self.drop(handle)

    def _expire(self, handle: int) -> None:
        logger.warning("a cache that was kept for another server was not fetched in %g s", self._keep_s)
        self.drop(handle)
