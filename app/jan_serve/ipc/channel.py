"""The worker's end of its pipe, which is its stdin and stdout; there is no socket. It moves whole frames (see `codec`).

The front's end is `async_channel`.
"""

from __future__ import annotations

import os
import threading

from jan_serve.errors import ProtocolError
from jan_serve.ipc.child_start import take_over_pipe
from jan_serve.ipc.codec import HEADER_BYTES, MAX_REQUEST_BYTES, decode_length, decode_request, encode_event
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
