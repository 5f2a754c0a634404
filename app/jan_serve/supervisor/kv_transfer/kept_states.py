"""Sequence states that this server's workers keep for other servers, with session numbers and expiry."""

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


Session = tuple[str, int]
"""Who may reach it (`core.cache_salt.key_of_request`), and its number."""


class KeptState:
    """A state in a worker. session: the key whose request it is of, and the number by which its peers fetch it, once
    it is bound."""

    def __init__(self, owner: StateHolder, state: int) -> None:
        self.owner = owner
        self.state = state
        self.session: Session | None = None
        self.timer: asyncio.TimerHandle | None = None


class KeptStates:
    """A state is dropped when it is freed, or if no peer fetches it in time. Event loop only."""

    def __init__(self, keep_s: float) -> None:
        self._keep_s = keep_s
        self._handles = itertools.count(1)
        self._by_handle: dict[int, KeptState] = {}
        self._by_session: dict[Session, int] = {}

    def __len__(self) -> int:
        return len(self._by_handle)

    def add(self, owner: StateHolder, state: int) -> int:
        """Take ownership of a state in a worker. Returns a handle."""
        handle = next(self._handles)
        kept = self._by_handle[handle] = KeptState(owner, state)
        kept.timer = asyncio.get_running_loop().call_later(self._keep_s, self._expire, handle)
        return handle

    def bind(self, handle: int, session: Session) -> None:
        """Let the peers of its key fetch it. Drops another state that had the session before."""
        kept = self._by_handle.get(handle)
        if kept is None or kept.session == session:
            return
        self.free(session)
        if kept.session is not None:
            del self._by_session[kept.session]
        kept.session = session
        self._by_session[session] = handle

    def find(self, session: Session) -> KeptState | None:
        handle = self._by_session.get(session)
        return None if handle is None else self._by_handle[handle]

    def free(self, session: Session) -> bool:
        """Drop the state of a session; False if there is none."""
        handle = self._by_session.get(session)
        return handle is not None and self.drop(handle)

    def drop(self, handle: int) -> bool:
        """False if it is gone already."""
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
        for handle in list(self._by_handle):
            self.drop(handle)

    def _expire(self, handle: int) -> None:
        logger.warning("dropping a state that no peer fetched in %g s", self._keep_s)
        self.drop(handle)
