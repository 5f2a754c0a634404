"""Serves kept states to linked peers over TCP."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from jan_serve.errors import InvalidState, JanServeError, PeerFailed
from jan_serve.ipc.messages import ReadState, StatePart
from jan_serve.supervisor.kv_transfer.kept_states import KeptState, KeptStates
from jan_serve.supervisor.kv_transfer.peer_connection import PeerConnection, accept
from jan_serve.supervisor.kv_transfer.peer_messages import (
    PART_BYTES,
    Done,
    Fetch,
    Found,
    Ping,
    Refused,
    Release,
    decode_request,
    encode,
)

logger = logging.getLogger(__name__)

MAX_CONNECTIONS: Final = 64
_HANDSHAKE_S: Final = 5.0


class StateServer:
    """Event loop only."""

    def __init__(
        self,
        kept: KeptStates,
        key_of: Callable[[str], bytes | None],
        caller_of: Callable[[str], str | None],
        *,
        patience_s: float,
    ) -> None:
        """key_of: the key of a link by its name; None for unknown names. caller_of: who made the link of this name."""
        self._kept = kept
        self._key_of = key_of
        self._caller_of = caller_of
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
        """Close the connections of a link."""
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
        try:
            name, connection = await accept(
                reader,
                writer,
                self._key_of,
                handshake_s=min(_HANDSHAKE_S, self._patience_s),
                patience_s=self._patience_s,
            )
            caller = self._caller_of(name)
            if caller is None:
                raise PeerFailed("The link of a client was dropped.")
            self._connections[connection] = name
            while (body := await connection.receive()) is not None:
                await self._answer(connection, caller, body)
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
            async with asyncio.timeout(self._patience_s):
                await writer.wait_closed()
        except (OSError, TimeoutError):
            pass
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
    return await kept.owner.read_state(
        ReadState(id=kept.owner.next_id(), state=kept.state, offset=offset, length=PART_BYTES)
    )
