"""The front's end of a worker's pipe, over the streams of an asyncio subprocess.

The worker's end is `channel`: no process of ours but the front pays for asyncio.
"""

from __future__ import annotations

import asyncio

from jan_serve.errors import ProtocolError
from jan_serve.ipc.codec import HEADER_BYTES, MAX_EVENT_BYTES, decode_event, decode_length, encode_request
from jan_serve.ipc.messages import WorkerEvent, WorkerRequest


class AsyncChannel:
    """The front's end, over the worker's stdout (reader) and stdin (writer)."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def receive(self) -> WorkerEvent | None:
        """The next event; None once the worker closed its end. Raises ProtocolError as BlockingChannel does."""
        try:
            header = await self._reader.readexactly(HEADER_BYTES)
        except asyncio.IncompleteReadError as ended:
            if not ended.partial:
                return None
            raise ProtocolError("the pipe ended inside a frame header") from ended
        length = decode_length(header, MAX_EVENT_BYTES)
        try:
            return decode_event(await self._reader.readexactly(length))
        except asyncio.IncompleteReadError as ended:
            message = f"the pipe ended inside a frame ({len(ended.partial)} of {length} bytes)"
            raise ProtocolError(message) from ended

    async def send(self, request: WorkerRequest) -> None:
        """Write one frame, and wait while the worker does not read. A cancelled send is still written whole.

        Raises ConnectionError once the worker is gone; ProtocolError, and writes nothing, above the size limit.
        """
        self._write(encode_request(request))
        await self._writer.drain()

    def send_nowait(self, request: WorkerRequest) -> None:
        """Write one small frame without waiting. Dropped if the worker is gone, which receive() reports."""
        self._write(encode_request(request))

    def close(self) -> None:
        """Close the write end, which ends the worker. Does not wait."""
        self._writer.close()

    def _write(self, frame: bytes) -> None:
        if not self._writer.is_closing():
            self._writer.write(frame)
