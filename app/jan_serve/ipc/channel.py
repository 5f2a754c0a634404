"""Both ends of the worker pipe, which is the worker's stdin and stdout; there is no socket.

BlockingChannel is the worker's end, over file descriptors. AsyncChannel is the front's end, over the streams of an
asyncio subprocess. Both move whole frames (see `codec`).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import threading

from jan_serve.errors import ProtocolError
from jan_serve.ipc.codec import (
    HEADER_BYTES,
    MAX_EVENT_BYTES,
    MAX_REQUEST_BYTES,
    decode_event,
    decode_length,
    decode_request,
    encode_event,
    encode_request,
)
from jan_serve.ipc.messages import WorkerEvent, WorkerRequest

_READ_BYTES = 1024 * 1024


class BlockingChannel:
    """The worker's end. One thread receives; any thread may send."""

    def __init__(self, read_fd: int, write_fd: int) -> None:
        self._read_fd = read_fd
        self._write_fd = write_fd
        self._write_lock = threading.Lock()

    def receive(self) -> WorkerRequest | None:
        """Block until the next request; None once the front closed the pipe or died.

        Raises ProtocolError on a frame that is too large, truncated or unknown. The pipe is unusable after that.
        """
        header = self._read(HEADER_BYTES)
        if not header:
            return None
        length = decode_length(header, MAX_REQUEST_BYTES)
        body = self._read(length)
        if len(body) != length:
            raise ProtocolError(f"the pipe ended inside a frame ({len(body)} of {length} bytes)")
        return decode_request(body)

    def send(self, event: WorkerEvent) -> None:
        """Write one frame. Blocks while the pipe is full: a slow front slows the worker down.

        Raises BrokenPipeError once the front is gone; ProtocolError, and writes nothing, above the size limit.
        """
        frame = encode_event(event)
        with self._write_lock:
            rest = memoryview(frame)
            while rest:
                rest = rest[os.write(self._write_fd, rest) :]

    def close(self) -> None:
        """Close both descriptors. A receive() in another thread may stay blocked."""
        os.close(self._read_fd)
        os.close(self._write_fd)

    def _read(self, length: int) -> bytes:
        """`length` bytes, or fewer at the end of the pipe. Allocates as bytes arrive, not as announced."""
        data = bytearray()
        while len(data) < length:
            part = os.read(self._read_fd, min(length - len(data), _READ_BYTES))
            if not part:
                break
            data += part
        return bytes(data)


def take_over_stdio() -> BlockingChannel:
    return BlockingChannel(*take_over_pipe())


def take_over_pipe() -> tuple[int, int]:
    """Make stdin and stdout the private pipe of this process; returns its read and write ends. Call it first.

    Afterwards descriptor 1 is stderr, because native code prints to stdout, and 0 is the null device. Child processes
    do not inherit the pipe (PEP 446), so it closes with this process.
    """
    read_fd = os.dup(0)
    write_fd = os.dup(1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(2, 1)
    if sys.platform == "win32":
        import msvcrt

        msvcrt.setmode(read_fd, os.O_BINARY)
        msvcrt.setmode(write_fd, os.O_BINARY)
    else:
        _keep_from_children()
    sys.stdout = sys.stderr
    return read_fd, write_fd


def _keep_from_children() -> None:
    """Some event loops (uvloop) pass down copies of the pipe beside 0 and 1, which a child would hold open."""
    for name in os.listdir("/dev/fd"):
        if int(name) > 2:
            with contextlib.suppress(OSError):  # the listing's own descriptor is closed already
                os.set_inheritable(int(name), False)


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
