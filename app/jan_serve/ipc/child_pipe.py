"""The pipe of a child process of ours, which it takes over (stdin and stdout): frames; and its end with the front.

A frame is a u32 little-endian length, then that many bytes of a message. Neither end trusts the other: a length is
checked against the limit before allocating, and a body that is no known message is a ProtocolError. The format has no
versions: both ends are the same build.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import struct
import sys
import threading
from functools import cached_property
from typing import Any, Final, Generic, TypeVar

import msgspec

from jan_serve.errors import ProtocolError

PARENT_VARIABLE = "JAN_SERVE_PARENT"
"""Variable of the environment with the pid of the process that started this one."""

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4


def end_with_parent() -> None:
    """Linux: SIGKILL this process when the thread that started it ends (prctl(2), PR_SET_PDEATHSIG). Raises OSError.

    The end of the pipe says so on every platform, but a native call that never releases the GIL would block the thread
    that reads it."""
    if sys.platform == "linux":
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if str(os.getppid()) != os.environ.get(PARENT_VARIABLE, str(os.getppid())):
            # The parent died before the call, so no signal will come.
            os.kill(os.getpid(), signal.SIGKILL)


def write_no_core_dump() -> None:
    """Linux: a crash writes no dump of the memory, which has prompts and weights (PR_SET_DUMPABLE). The front then
    notices a crash at once: while a dump is written, the pipe stays open."""
    if sys.platform == "linux":
        _prctl(_PR_SET_DUMPABLE, 0)


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    unused = ctypes.c_ulong(0)
    if libc.prctl(option, ctypes.c_ulong(value), unused, unused, unused) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl({option}): {os.strerror(number)}")


def take_over_pipe() -> tuple[int, int]:
    """Make stdin and stdout the private pipe of this process; returns its read and write ends. Call it first.
    Afterwards descriptor 1 is stderr, because native code prints to stdout, and 0 is the null device. Child processes
    do not inherit the pipe (PEP 446), so it closes with this process."""
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


LENGTH: Final = struct.Struct("<I")
_READ_BYTES: Final = 1024 * 1024

M = TypeVar("M")


class Frames(Generic[M]):
    """Messages of one kind, a class or a union. what, place: name them and their pipe in errors. limit: most bytes."""

    def __init__(self, kind: Any, what: str, place: str, limit: int, codec: Any = msgspec.msgpack) -> None:
        self._kind, self._what, self._place, self.limit = kind, what, place, limit
        self._codec = codec
        self._encode = codec.Encoder().encode

    @cached_property
    def _decode(self) -> Any:
        """Made on use: each end needs one of them, and a decoder of many messages takes milliseconds."""
        return self._codec.Decoder(self._kind).decode

    def body(self, message: M) -> bytes:
        """Equal messages have equal ones. Raises ProtocolError above the limit, or for values without an encoding."""
        try:
            body: bytes = self._encode(message)
        except (UnicodeEncodeError, OverflowError, RecursionError) as error:
            # Values from outside: a lone surrogate, an integer of more than 64 bits, endless nesting.
            raise ProtocolError(f"a value cannot be written to {self._place}: {error}") from error
        if len(body) > self.limit:
            raise ProtocolError(
                f"a message of {len(body)} bytes is too large for {self._place}; the limit is {self.limit}"
            )
        return body

    def encode(self, message: M) -> bytes:
        """A frame with its header. Raises as `body`."""
        return framed(self.body(message))

    def decode(self, body: bytes) -> M:
        """Inverse of `body`. Raises ProtocolError."""
        try:
            return self._decode(body)
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            raise ProtocolError(f"a frame is not a {self._what}: {error}") from error


def framed(body: bytes) -> bytes:
    return LENGTH.pack(len(body)) + body


def body_length(header: bytes, limit: int) -> int:
    """The length in a header of LENGTH.size bytes. Raises ProtocolError above the limit."""
    if len(header) != LENGTH.size:
        raise ProtocolError(f"the pipe ended inside a frame header ({len(header)} of {LENGTH.size} bytes)")
    length: int = LENGTH.unpack(header)[0]
    if length > limit:
        raise ProtocolError(f"a frame announces {length} bytes; the limit is {limit}")
    return length


class BlockingPipe:
    """A child's end of its pipe. One thread reads; any thread may write."""

    def __init__(self, read_fd: int, write_fd: int) -> None:
        self._read_fd, self._write_fd = read_fd, write_fd
        self._write_lock = threading.Lock()

    def read(self, limit: int) -> bytes | None:
        """Block until the next body; None once the front closed the pipe or died. Raises ProtocolError on a frame that
        is too large or truncated. The pipe is unusable after that."""
        header = self._bytes(LENGTH.size)
        if not header:
            return None
        length = body_length(header, limit)
        body = self._bytes(length)
        if len(body) != length:
            raise ProtocolError(f"the pipe ended inside a frame ({len(body)} of {length} bytes)")
        return body

    def write(self, frame: bytes) -> None:
        """Blocks while the pipe is full: a slow front slows its child down. BrokenPipeError once the front is gone."""
        with self._write_lock:
            rest = memoryview(frame)
            while rest:
                rest = rest[os.write(self._write_fd, rest) :]

    def close(self) -> None:
        """Close both descriptors. A read in another thread may stay blocked."""
        os.close(self._read_fd)
        os.close(self._write_fd)

    def _bytes(self, length: int) -> bytes:
        """So many, or fewer at the end of the pipe. Allocates as bytes arrive, not as announced."""
        data = bytearray()
        while len(data) < length and (part := os.read(self._read_fd, min(length - len(data), _READ_BYTES))):
            data += part
        return bytes(data)
