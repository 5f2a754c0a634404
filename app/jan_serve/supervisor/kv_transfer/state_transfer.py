"""Moves sequence states between servers: keeps and serves those of this server's workers, fetches those of peers."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections.abc import Callable
from typing import Final, Protocol, TypeVar

import msgspec

from jan_serve.core.kv_transfer import PeerEndpoint
from jan_serve.errors import InvalidState, JanServeError, Overloaded, PeerFailed
from jan_serve.ipc.messages import ReadState, StatePart, StoreState
from jan_serve.ipc.scoring import Query
from jan_serve.supervisor.kv_transfer.peer_connection import (
    PART_BYTES,
    Done,
    Fetch,
    Found,
    PeerAnswer,
    PeerConnection,
    PeerRequest,
    Ping,
    Refused,
    Release,
    accept,
    decode_answer,
    decode_request,
    encode,
)

logger = logging.getLogger(__name__)

A = TypeVar("A")


class StateHolder(Protocol):
    """A client of the worker that holds a state. `WorkerEngineClient`; callers know `generation.ports.EngineClient`."""

    async def ask(self, request: Query[A]) -> A: ...
    def drop_state(self, state: int) -> None: ...


class Link(msgspec.Struct):
    """name: the peer presents it to fetch from us. key: the peer must know it. caller: who made the link, and reaches
    the states of its own requests over it. peer: where we fetch from."""

    name: str
    key: bytes
    caller: str
    peer: PeerEndpoint | None = None


Session = tuple[str, int]
"""Who may reach it (`core.cache_salt.key_of_request`), and its number."""


class KeptState(msgspec.Struct):
    """A state in a worker. session: its request's key and number, once it is bound."""

    owner: StateHolder
    state: int
    timer: asyncio.TimerHandle
    session: Session | None = None


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
        timer = asyncio.get_running_loop().call_later(self._keep_s, self._expire, handle)
        self._by_handle[handle] = KeptState(owner, state, timer)
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
        handle = self._by_session.get(session)
        return handle is not None and self.drop(handle)

    def drop(self, handle: int) -> bool:
        """False if it is gone already."""
        kept = self._by_handle.pop(handle, None)
        if kept is None:
            return False
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


MAX_CONNECTIONS: Final = 64
_HANDSHAKE_S: Final = 5.0


class StateServer:
    """Lives on the event loop only."""

    def __init__(self, kept: KeptStates, link_of: Callable[[str], Link | None], *, patience_s: float) -> None:
        """link_of: the link of this name; None for unknown names."""
        self._kept = kept
        self._link_of = link_of
        self._patience_s = patience_s
        self._server: asyncio.Server | None = None
        self._serving: set[asyncio.Task[None]] = set()
        self._connections: dict[PeerConnection, str] = {}

    @property
    def open_connections(self) -> int:
        """Including those in the handshake."""
        return len(self._serving)

    async def listen(self, host: str) -> int:
        """Listen, if it does not yet. Returns the port. Raises OSError."""
        if self._server is None:
            self._server = await asyncio.start_server(self._accepted, host, 0, limit=PART_BYTES)
        return int(self._server.sockets[0].getsockname()[1])

    def drop(self, name: str) -> None:
        for connection, known in list(self._connections.items()):
            if known == name:
                connection.abort()

    async def close(self) -> None:
        """Stop listening and close every connection."""
        if self._server is not None:
            self._server.close()
        for task in self._serving:
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)
        if self._server is not None:
            await self._server.wait_closed()
            self._server = None

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._serving) >= MAX_CONNECTIONS:
            logger.warning("rejected a peer: %d connections are open", MAX_CONNECTIONS)
            writer.transport.abort()
            return
        task = asyncio.create_task(self._serve(reader, writer), name="serve peer")
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection: PeerConnection | None = None
        handshake_s = min(_HANDSHAKE_S, self._patience_s)

        def key_of(name: str) -> bytes | None:
            link = self._link_of(name)
            return None if link is None else link.key

        try:
            name, connection = await accept(
                reader, writer, key_of, handshake_s=handshake_s, patience_s=self._patience_s
            )
            link = self._link_of(name)
            if link is None:
                raise PeerFailed("The link of a client was dropped.")
            self._connections[connection] = name
            while (body := await connection.receive()) is not None:
                await self._answer(connection, link.caller, body)
        except JanServeError as error:
            logger.warning("connection of a peer failed: %s", error.message)
        except Exception:
            logger.exception("cannot serve a peer")
        finally:
            if connection is not None:
                self._connections.pop(connection, None)
            await self._close(writer)

    async def _close(self, writer: asyncio.StreamWriter) -> None:
        """Send the rest while the peer still reads."""
        writer.close()
        try:
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(self._patience_s):
                    await writer.wait_closed()
        finally:
            writer.transport.abort()

    async def _answer(self, connection: PeerConnection, caller: str, body: bytes) -> None:
        match decode_request(body):
            case Ping():
                await connection.send(encode(Done()))
            case Release(session=session):
                self._kept.free((caller, session))
                await connection.send(encode(Done()))
            case Fetch(session=session):
                kept = self._kept.find((caller, session))
                if kept is None:
                    error = InvalidState(f"Nothing is kept here of session {session}.")
                    await connection.send(encode(Refused(error.code, error.payload())))
                else:
                    await self._send_state(connection, kept)

    async def _send_state(self, connection: PeerConnection, kept: KeptState) -> None:
        """Read a part while the one before is sent: neither end holds much of the state."""
        try:
            part = await _read(kept, 0)
        except JanServeError as error:
            await connection.send(encode(Refused(error.code, error.payload())))
            return
        await connection.send(encode(Found(part.total)))
        offset = 0
        while True:
            if not part.data:
                raise PeerFailed("a cache ended early")
            offset += len(part.data)
            if offset >= part.total:
                await connection.send(part.data)
                return
            reading = asyncio.create_task(_read(kept, offset))
            try:
                await connection.send(part.data)
                part = await reading
            finally:
                reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)


async def _read(kept: KeptState, offset: int) -> StatePart:
    return await kept.owner.ask(ReadState(state=kept.state, offset=offset, length=PART_BYTES))


_MAX_STATE_BYTES: Final = 1 << 40
_MAX_REASON: Final = 300


async def ping(connection: PeerConnection) -> None:
    _expect_done(await _request(connection, Ping()))


async def pull(connection: PeerConnection, session: int, taker: StateHolder, state: int) -> None:
    """Copy the peer's state of a session into a worker, as its `state`. The peer then drops its own. Raises
    PeerFailed, InvalidState, Overloaded, and the worker's errors; the worker may then hold a part of the state."""
    found = await _request(connection, Fetch(session))
    if not isinstance(found, Found) or not 0 < found.total <= _MAX_STATE_BYTES:
        raise PeerFailed("The other server did not say how large its cache is.")
    received = 0
    while received < found.total:
        data = await connection.receive()
        if not data:
            raise PeerFailed("The other server broke off in the middle of its cache.")
        # With the last part, the worker checks the whole state.
        part = StoreState(state=state, offset=received, total=found.total, data=data)
        received = (await taker.ask(part)).received
    try:
        _expect_done(await _request(connection, Release(session)))
    except JanServeError as error:
        # The state has arrived. The peer drops its own when it expires.
        logger.warning("cannot release session %d at a peer: %s", session, error.message)


async def _request(connection: PeerConnection, request: PeerRequest) -> PeerAnswer:
    """The answer; raises the error of a refusal."""
    await connection.send(encode(request))
    body = await connection.receive()
    if body is None:
        raise PeerFailed("The other server closed the connection.")
    answer = decode_answer(body)
    if isinstance(answer, Refused):
        raise _refusal(answer)
    return answer


def _refusal(refused: Refused) -> JanServeError:
    """The error for this server's client. Only the text is the peer's: it is another program, of any version."""
    reason = refused.payload.get("message")
    if not isinstance(reason, str):
        return PeerFailed("The other server refused, and did not say why.")
    if len(reason) > _MAX_REASON:
        reason = f"{reason[:_MAX_REASON]}…"
    match refused.code:
        case InvalidState.code:
            return InvalidState(reason)
        case Overloaded.code:
            return Overloaded(reason)
        case _:
            return PeerFailed(f"The other server refused: {reason}")


def _expect_done(answer: PeerAnswer) -> None:
    if not isinstance(answer, Done):
        raise PeerFailed("The other server answered something else than it was asked.")
