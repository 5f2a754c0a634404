"""Renders what comes down the pipe, one request after the other. Started as `jan-serve render`; not for people.

A template may use as much CPU time and memory as LIMITS say. Beyond the first the kernel ends this process, which its
caller takes for the answer; beyond the second the template gets a MemoryError. A process that ran into it, or in which
templates left much behind, renders no other template: what is left would be too little for one that does no wrong.
Where the platform has no such limits (Windows, and memory on macOS), the caller's own time limit is what holds.
"""

from __future__ import annotations

import mmap
import os
import signal
import sys
from typing import Final

import msgspec

from jan_serve.chat.template import render_prompt
from jan_serve.errors import JanServeError, ProtocolError, TemplateError
from jan_serve.ipc.channel import take_over_pipe
from jan_serve.ipc.parent_death import end_with_parent, write_no_core_dump
from jan_serve.ipc.rendering import LENGTH, MAX_FRAME_BYTES, RenderReply, decode_request, frame

CPU_LIMIT_S: Final = 2.0
MEMORY_LIMIT_BYTES: Final = 256 << 20
"""Beyond what the process uses before its first template."""

MEMORY_LEFT_BYTES: Final = MEMORY_LIMIT_BYTES // 2
"""What the next template has at least."""


def main() -> int:
    """Until the pipe ends."""
    read_fd, write_fd = take_over_pipe()
    end_with_parent()
    write_no_core_dump()
    limit = _limit_memory()
    while (body := _receive(read_fd)) is not None:
        _limit_time(CPU_LIMIT_S)
        data, last = _answer(body, limit)
        _limit_time(0)
        _send(write_fd, data)
        if last:
            break
    return 0


def _answer(body: bytes, limit: int | None) -> tuple[bytes, bool]:
    """The frame to send, and whether it is the last."""
    try:
        reply = _render(body)
        if limit is not None and _memory_bytes() > limit - MEMORY_LEFT_BYTES:
            reply = msgspec.structs.replace(reply, last=True)
        return frame(reply), reply.last
    except (MemoryError, ProtocolError) as error:
        reason = "used too much memory" if isinstance(error, MemoryError) else "wrote too much text"
    failure = TemplateError(f"the chat template {reason}", param="messages")
    return frame(RenderReply(code=failure.code, payload=failure.payload(), last=True)), True


def _render(body: bytes) -> RenderReply:
    try:
        request = decode_request(body)
        return RenderReply(text=render_prompt(request.prompt, request.facts, lambda: request.now))
    except JanServeError as error:
        return RenderReply(code=error.code, payload=error.payload(), last=_is_of_memory(error))


def _is_of_memory(error: BaseException) -> bool:
    """Whether a MemoryError was at its root."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, MemoryError):
        cause = cause.__cause__ or cause.__context__
    return cause is not None


def _limit_time(seconds: float) -> None:
    """CPU time of this process from now on, after which SIGPROF ends it; 0 lifts the limit."""
    if sys.platform != "win32":
        signal.setitimer(signal.ITIMER_PROF, seconds)


def _limit_memory() -> int | None:
    """Bytes of address space that the process may have from now on; None where the platform has no such limit."""
    if sys.platform != "linux":
        return None
    import resource

    limit = _memory_bytes() + MEMORY_LIMIT_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    return limit


def _memory_bytes() -> int:
    """Address space of this process. Only on Linux."""
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
