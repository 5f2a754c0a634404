"""A helper process: one reply per request over its pipe, under limits on CPU time and memory that it sets itself.

Above the CPU time limit the kernel kills the process. Above the memory limit it raises MemoryError and then takes no
other request, because the rest of the memory may be too little for a normal one; the same holds if finished requests
left much memory in use. Without such limits (Windows, and memory on macOS) only the caller's timeout applies.
"""

from __future__ import annotations

import mmap
import os
import signal
import struct
import sys
from typing import Final, Protocol, TypeVar

import msgspec

from jan_serve.errors import ProtocolError
from jan_serve.ipc.parent_death import end_with_parent, write_no_core_dump
from jan_serve.ipc.stdio_pipe import take_over_pipe

MAX_FRAME_BYTES: Final = 64 * 1024 * 1024
LENGTH: Final = struct.Struct("<I")


class HelperReply(msgspec.Struct, frozen=True, kw_only=True):
    """Base of replies. last: the process takes no request after it."""

    last: bool = False


def framed(body: bytes) -> bytes:
    """Prefix the body with its u32 little-endian length. Raises ProtocolError."""
    if len(body) > MAX_FRAME_BYTES:
        raise ProtocolError(f"a message of {len(body)} bytes is too large for a helper process")
    return LENGTH.pack(len(body)) + body


R = TypeVar("R", bound=HelperReply)


class HelperWork(Protocol[R]):
    """The work of a helper process."""

    def answer(self, body: bytes) -> R:
        """The reply to a request. Raises MemoryError, and ProtocolError if there can be no reply."""
        ...

    def refusal(self, error: MemoryError | ProtocolError) -> R:
        """The reply in place of one too large for the memory or the pipe."""
        ...

    def frame(self, reply: R) -> bytes:
        """As `framed`. Raises MemoryError, ProtocolError."""
        ...


def serve(work: HelperWork[R], *, cpu_limit_s: float, memory_limit_bytes: int) -> int:
    """Answer requests until the pipe ends or a reply is the last. Returns the exit status.

    memory_limit_bytes: on top of the current use; each request gets at least half of it.
    """
    read_fd, write_fd = take_over_pipe()
    end_with_parent()
    write_no_core_dump()
    limit = _limit_memory(memory_limit_bytes)
    max_bytes = None if limit is None else limit - memory_limit_bytes // 2
    while (body := _receive(read_fd)) is not None:
        _limit_time(cpu_limit_s)
        data, last = _reply(work, body, max_bytes)
        _limit_time(0)
        _send(write_fd, data)
        if last:
            break
    return 0


def _reply(work: HelperWork[R], body: bytes, max_bytes: int | None) -> tuple[bytes, bool]:
    """The frame to send, and whether it is the last. max_bytes: in use, for the process to take another request."""
    try:
        reply = work.answer(body)
        if max_bytes is not None and _memory_bytes() > max_bytes:
            reply = msgspec.structs.replace(reply, last=True)
        return work.frame(reply), reply.last
    except (MemoryError, ProtocolError) as error:
        failed = error.with_traceback(None)
    return work.frame(msgspec.structs.replace(work.refusal(failed), last=True)), True


def ran_out_of_memory(error: BaseException) -> bool:
    """Whether its root cause is a MemoryError."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, MemoryError):
        cause = cause.__cause__ or cause.__context__
    return cause is not None


def _limit_time(seconds: float) -> None:
    """SIGPROF kills this process after this much more CPU time; 0 removes the limit."""
    if sys.platform != "win32":
        signal.setitimer(signal.ITIMER_PROF, seconds)


def _limit_memory(limit_bytes: int) -> int | None:
    """Limit the address space to the current use plus `limit_bytes`. Returns the limit; None if unsupported."""
    if sys.platform != "linux":
        return None
    import resource

    limit = _memory_bytes() + limit_bytes
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    return limit


def _memory_bytes() -> int:
    """Address space of this process. Linux only."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[0]) * mmap.PAGESIZE


def _receive(fd: int) -> bytes | None:
    header = _read(fd, LENGTH.size)
    if len(header) < LENGTH.size:
        return None
    length: int = LENGTH.unpack(header)[0]
    if length > MAX_FRAME_BYTES:
        return None
    body = _read(fd, length)
    return body if len(body) == length else None


def _read(fd: int, length: int) -> bytes:
    data = bytearray()
    while len(data) < length and (part := os.read(fd, length - len(data))):
        data += part
    return bytes(data)


def _send(fd: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]
