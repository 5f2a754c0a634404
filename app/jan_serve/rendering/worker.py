"""Renders what comes down the pipe, one request after the other. Started as `jan-serve render`; not for people.

A template may use as much CPU time and memory as LIMITS say. Beyond the first the kernel ends this process, which its
caller takes for the answer; beyond the second the template gets a MemoryError. Where the platform has no such limits
(Windows, and memory on macOS), the caller's own time limit is what holds.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Final

from jan_serve.chat.template import render_prompt
from jan_serve.errors import JanServeError
from jan_serve.ipc.channel import take_over_pipe
from jan_serve.ipc.parent_death import end_with_parent, write_no_core_dump
from jan_serve.ipc.rendering import LENGTH, MAX_FRAME_BYTES, RenderReply, decode_request, frame

CPU_LIMIT_S: Final = 2.0
MEMORY_LIMIT_BYTES: Final = 256 << 20
"""Beyond what the process uses before its first template."""


def main() -> int:
    """Until the pipe ends."""
    read_fd, write_fd = take_over_pipe()
    end_with_parent()
    write_no_core_dump()
    _limit_memory()
    while (body := _receive(read_fd)) is not None:
        _limit_time(CPU_LIMIT_S)
        reply = frame(_render(body))
        _limit_time(0)
        _send(write_fd, reply)
    return 0


def _render(body: bytes) -> RenderReply:
    try:
        request = decode_request(body)
        return RenderReply(text=render_prompt(request.prompt, request.facts, lambda: request.now))
    except JanServeError as error:
        return RenderReply(code=error.code, payload=error.payload())


def _limit_time(seconds: float) -> None:
    """CPU time of this process from now on, after which SIGPROF ends it; 0 lifts the limit."""
    if sys.platform != "win32":
        signal.setitimer(signal.ITIMER_PROF, seconds)


def _limit_memory() -> None:
    if sys.platform != "linux":
        return
    import resource

    with open("/proc/self/statm", encoding="ascii") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    limit = used + MEMORY_LIMIT_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


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
