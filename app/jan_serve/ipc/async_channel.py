"""The front's end of a worker's pipe. The worker's is `channel`: no process but the front pays for asyncio."""

from __future__ import annotations

import asyncio

from jan_serve.errors import ProtocolError
from jan_serve.ipc.channel import EVENTS, REQUESTS
from jan_serve.ipc.child_pipe import LENGTH, body_length
from jan_serve.ipc.messages import WorkerEvent, WorkerRequest


class AsyncChannel:
    """The streams of an asyncio subprocess: the worker's stdout (reader) and stdin (writer)."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def receive(self) -> WorkerEvent | None:
        """The next event; None once the worker closed its end. Raises ProtocolError as BlockingChannel does."""
        header = b""
        try:
            header = await self._reader.readexactly(LENGTH.size)
            return EVENTS.decode(await self._reader.readexactly(body_length(header, EVENTS.limit)))
        except asyncio.IncompleteReadError as ended:
            if not header and not ended.partial:
                return None
            message = f"the pipe ended inside a frame ({len(ended.partial)} of {ended.expected} bytes)"
            raise ProtocolError(message) from ended

    async def send(self, request: WorkerRequest) -> None:
        """Write one frame, and wait while the worker does not read. A cancelled send is still written whole. Raises
        ConnectionError once the worker is gone; ProtocolError, and writes nothing, above the size limit."""
        self.send_nowait(request)
        await self._writer.drain()

    def send_nowait(self, request: WorkerRequest) -> None:
        """Write one small frame without waiting. Dropped if the worker is gone, which receive() reports."""
        frame = REQUESTS.encode(request)
        if not self._writer.is_closing():
            self._writer.write(frame)

    def close(self) -> None:
        """Close the write end, which ends the worker. Does not wait."""
        self._writer.close()
