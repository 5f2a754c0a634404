"""The process's end: one reply per request over its pipe, under limits on CPU time and memory that it sets itself.

Above the CPU time limit the kernel kills the process. Above the memory limit it raises MemoryError and then takes no
other request, because the rest of the memory may be too little for a normal one; the same holds if finished requests
left much memory in use. That the machine does not grant as much is no fault of the request. Without such limits
(Windows, and memory on macOS) only the caller's timeout applies.
"""

from __future__ import annotations

import mmap
import os
import signal
import sys
from collections.abc import Callable
from typing import Final, Literal, TypeVar

import msgspec

from jan_serve.errors import NO_MEMORY, InsufficientMemory, JanServeError, ProtocolError, ran_out_of_memory
from jan_serve.helpers.kinds import (
    COMPILING,
    DECODING,
    HEADERS,
    MAX_FRAME_BYTES,
    RENDERING,
    HelperKind,
    Reply,
)
from jan_serve.ipc.child_pipe import BlockingPipe, end_with_parent, framed, take_over_pipe, write_no_core_dump

_SHORT: Final = InsufficientMemory(NO_MEMORY)
_MARGIN: Final = 1 << 20

Q = TypeVar("Q")
A = TypeVar("A")


def helper(command: Literal["render", "compile", "media", "headers"]) -> Callable[[], int]:
    """Serves requests of the kind that a hidden subcommand names. Imports what this kind needs, and no more."""
    match command:
        case "render":
            from jan_serve.chat.template import rendered_chat

            return lambda: serve(RENDERING, rendered_chat)
        case "compile":
            from jan_serve.helpers.work.compiling import compiled

            return lambda: serve(COMPILING, compiled)
        case "media":
            from jan_serve.helpers.work.media import decoded

            return lambda: serve(DECODING, decoded)
        case "headers":
            from jan_serve.helpers.work.headers import facts

            return lambda: serve(HEADERS, facts)


def serve(kind: HelperKind[Q, A], work: Callable[[Q], A]) -> int:
    """Answer requests until the pipe ends or a reply is the last. Returns the exit status. The limit of memory comes on
    top of the current use; each request gets at least half of it."""
    pipe = BlockingPipe(*take_over_pipe())
    end_with_parent()
    write_no_core_dump()
    if kind.niceness and sys.platform != "win32":
        os.nice(kind.niceness)
    limit = _limit_memory(kind.memory_limit_bytes)
    max_bytes = None if limit is None else limit - kind.memory_limit_bytes // 2
    while (body := pipe.read(MAX_FRAME_BYTES)) is not None:
        _limit_time(kind.cpu_limit_s)
        data, last = reply_to(
            kind, work, body, max_bytes, lambda: limit is not None and not _is_granted(limit)
        )
        _limit_time(0)
        pipe.write(framed(data))
        if last:
            break
    return 0


def reply_to(
    kind: HelperKind[Q, A],
    work: Callable[[Q], A],
    body: bytes,
    max_bytes: int | None = None,
    is_short: Callable[[], bool] = lambda: False,
) -> tuple[bytes, bool]:
    """The encoded reply to a request, and whether it is the last.

    max_bytes: most memory in use for the process to take another request; None: without a limit. is_short: whether the
    machine has less memory than a request may use; asked when one got none.
    """
    try:
        reply = _answered(kind, work, body, is_short)
        if max_bytes is not None and _memory_bytes() > max_bytes:
            reply = msgspec.structs.replace(reply, last=True)
        return kind.replies.body(reply), reply.last
    except Exception as error:
        if not (isinstance(error, ProtocolError) or ran_out_of_memory(error)):
            raise
        is_large = isinstance(error, ProtocolError)
        # The block is left first, since the traceback holds what took the memory.
    if is_large or not is_short():
        return kind.replies.body(Reply(beyond_limits=True, last=True)), True
    return kind.replies.body(Reply(code=_SHORT.code, payload=_SHORT.payload(), last=True)), True


def _answered(
    kind: HelperKind[Q, A], work: Callable[[Q], A], body: bytes, is_short: Callable[[], bool]
) -> Reply[A]:
    try:
        return Reply(result=work(kind.requests.decode(body)))
    except JanServeError as error:
        last = ran_out_of_memory(error)
        said = _SHORT if last and is_short() else error
        return Reply(code=said.code, payload=said.payload(), last=last)


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


def _is_granted(limit: int) -> bool:
    """Whether the system gives this process what is left to its own limit."""
    left = limit - _memory_bytes() - _MARGIN
    try:
        if left > 0:
            mmap.mmap(-1, left, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS).close()
    except (OSError, MemoryError):
        return False
    return True


def _memory_bytes() -> int:
    """Address space of this process. Linux only."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[0]) * mmap.PAGESIZE
