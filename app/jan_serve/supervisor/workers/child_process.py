"""Spawns, awaits and kills a child process with three pipes in its own group, and keeps the last lines of its stderr.

`asyncio.subprocess.Process.wait()` also waits for the pipes in some versions of Python. `exited` does not: a
grandchild that holds a pipe open does not hide the end of the process.

Native code writes to stderr: its text may contain terminal escapes, file paths and addresses. `StderrTail.lines` is
for the log, `last_words` for HTTP clients. All of it is read: a full pipe would block the child.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import re
import signal
import sys
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

from jan_serve.errors import public_text
from jan_serve.ipc.child_pipe import PARENT_VARIABLE

_COUNT: Final = 3

_TRACEBACK: Final = re.compile(r'Traceback \(most recent call last\)|\s+File "')
_INDENTED: Final = re.compile(r"\s|\^+$|~*\^")
_REASON: Final = r"""
      \.(?:c|cc|cpp|cu|cuh|h|hpp|m|mm):\d+:\s      # ggml's aborts: the place, and an assertion or a message
    | assert(?:ion)?\b.*\bfailed | \bGGML_(?:ASSERT|ABORT)\b
    | ^abort(?:ed|ing)?\b | \bterminat(?:e\scalled|ing)\b | \bwhat\(\):
    | \berrors?:\s | \berror\sloading\b | ^Fatal\b
    | ^(?:\w+(?:\.|::))*\w+(?:Error|Exception)(?::|$)
    | ^(?:[\w.]+:\s)?cannot\s | \bcannot\sallocate\b | \bno\s(?:such|module)\b
    | out\sof\smemory | outofmemory | insufficient\smemory | bad_alloc
    | failed\sto\s(?:re)?alloc | (?:unable\sto|could\snot)\s(?:re)?alloc | \balloc\w*\s.*\bfailed\b
    | ^(?:free|malloc|realloc|munmap_chunk)\(\):\s | ^(?:double\sfree|corrupted\s) | stack\ssmashing
"""
"""Compiled at the first crash: that takes longer than all else here."""


def crash_reason(lines: Sequence[str]) -> str:
    """The last lines that are a reason, joined with " | ", safe to show; "" if there are none."""
    found = dict.fromkeys(public_text(line) for line in _reasons(lines))
    return " | ".join(list(found)[-_COUNT:])


def _reasons(lines: Sequence[str]) -> Iterator[str]:
    in_traceback = False
    for line in lines:
        if _TRACEBACK.match(line):
            in_traceback = True
        elif in_traceback and not _INDENTED.match(line):
            # A traceback ends with its exception, whose class may have any name.
            in_traceback = False
            yield line
        elif re.search(_REASON, line, re.VERBOSE | re.IGNORECASE) and not line.startswith("#"):
            yield line


_PIPE_LIMIT: Final = 1024 * 1024
_PIPES: Final = 5
"""A start opens three for the child, and one that tells how it began; with one to spare."""


_TUNABLES, _HUGE_PAGES = "GLIBC_TUNABLES", "glibc.malloc.hugetlb"

_SECRETS: Final = frozenset({"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HUGGINGFACE_HUB_TOKEN"})


def own_command(subcommand: str) -> tuple[str, ...]:
    """A hidden subcommand of jan-serve. -P: no module of the working directory can shadow ours."""
    if getattr(sys, "frozen", False):
        return (sys.executable, subcommand)
    return (sys.executable, "-P", "-m", "jan_serve", subcommand)


def child_environment(inherited: Mapping[str, str], *, huge_pages: bool = False) -> dict[str, str]:
    """The environment of a child of this process: no settings, no keys, no debugger on abort (ggml). huge_pages: make
    glibc request them from Linux for large blocks (`glibc.malloc.hugetlb`). Every token reads all weights and the KV
    cache, which then causes fewer TLB misses."""
    kept = {name: value for name, value in inherited.items() if not name.startswith("JAN_SERVE_")}
    for name in _SECRETS & kept.keys():
        del kept[name]
    tunables = kept.get(_TUNABLES, "")
    if huge_pages and sys.platform == "linux" and _HUGE_PAGES not in tunables:
        kept[_TUNABLES] = ":".join(filter(None, (tunables, f"{_HUGE_PAGES}=1")))
    # numpy's BLAS would start threads that spin for a while, beside those of the front and of llama.cpp.
    kept.setdefault("OPENBLAS_NUM_THREADS", "1")
    return {**kept, "GGML_NO_BACKTRACE": "1", "PYTHONUNBUFFERED": "1", PARENT_VARIABLE: str(os.getpid())}


class _Protocol(asyncio.subprocess.SubprocessStreamProtocol):
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(limit=_PIPE_LIMIT, loop=loop)
        self.exited = asyncio.Event()

    def process_exited(self) -> None:
        super().process_exited()
        self.exited.set()


class ChildProcess:
    """One spawned process, which the event loop reaps."""

    def __init__(self, transport: asyncio.SubprocessTransport, protocol: _Protocol) -> None:
        assert protocol.stdin and protocol.stdout and protocol.stderr
        self.stdin = protocol.stdin
        self.stdout = protocol.stdout
        self.stderr = protocol.stderr
        self.pid = transport.get_pid()
        self.exited = protocol.exited
        self._transport = transport

    @classmethod
    async def spawn(
        cls, command: Sequence[str], environment: Mapping[str, str], folder: Path | None = None
    ) -> Self:
        """Start the process, in the folder if given. Raises OSError."""
        _check_descriptors()
        loop = asyncio.get_running_loop()
        transport, protocol = await loop.subprocess_exec(
            lambda: _Protocol(loop),
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=dict(environment),
            cwd=folder,
            **_own_group(),
        )
        return cls(transport, protocol)

    @property
    def returncode(self) -> int | None:
        """None while it runs; negative for the signal that ended it."""
        return self._transport.get_returncode()

    @property
    def status(self) -> str:
        """How it ended: "exit status 3", "signal SIGSEGV"."""
        code = self.returncode
        if code is None or code >= 0:
            return f"exit status {code}"
        try:
            return f"signal {signal.Signals(-code).name}"
        except ValueError:
            return f"signal {-code}"

    def kill(self) -> None:
        """SIGKILL its process group, unless it has ended."""
        if self.returncode is None:
            self.kill_group()

    def kill_group(self) -> None:
        """SIGKILL its group even after it has ended. Only safe while a member lives: the id may be reused."""
        with contextlib.suppress(ProcessLookupError):
            if sys.platform == "win32":
                self._transport.kill()
            else:
                os.killpg(self.pid, signal.SIGKILL)

    def close(self) -> None:
        """Close our ends of the pipes, even if others hold theirs."""
        self._transport.close()


def _check_descriptors() -> None:
    """Raises OSError if there are too few for a start: uvloop would leave open for ever what it had opened for it."""
    pipes: list[tuple[int, int]] = []
    try:
        for _ in range(_PIPES):
            pipes.append(os.pipe())
    finally:
        for descriptor in itertools.chain(*pipes):
            os.close(descriptor)


def _own_group() -> dict[str, Any]:
    """The terminal's Ctrl-C reaches only the front, which then ends its workers in order."""
    if sys.platform == "win32":
        import subprocess

        return {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP | subprocess.CREATE_NO_WINDOW}
    return {"start_new_session": True}


MAX_LINES = 50
MAX_LINE_CHARS = 400
_READ: Final = 64 * 1024
_AFTER_EXIT_S: Final = 0.5


def sanitise(text: str) -> str:
    """One line with control, format and unassigned characters escaped, cut at MAX_LINE_CHARS."""
    cut = text[:MAX_LINE_CHARS]
    cut = cut.replace("\t", "    ")
    safe = "".join(char if char.isprintable() else f"\\x{ord(char):02x}" for char in cut)
    return safe + "…" if len(text) > MAX_LINE_CHARS else safe


class StderrTail:
    """A ring of lines, fed with bytes."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=MAX_LINES)
        self._partial = b""

    def feed(self, data: bytes) -> list[str]:
        """Returns the lines that these bytes complete, sanitised."""
        *whole, rest = (self._partial + data).replace(b"\r\n", b"\n").split(b"\n")
        max_bytes = 4 * MAX_LINE_CHARS
        if len(rest) > max_bytes:
            # An endless line must not grow: keep its start.
            rest = rest[: max_bytes + 1]
        self._partial = rest
        completed = [sanitise(line.decode("utf-8", "replace")) for line in whole if line.strip()]
        self._lines.extend(completed)
        return completed

    def close(self) -> list[str]:
        """No more bytes come: complete the last line."""
        return self.feed(b"\n") if self._partial else []

    @property
    def lines(self) -> tuple[str, ...]:
        return tuple(self._lines)

    def last_words(self) -> str:
        """The reason of a crash, safe to show; see `crash_reason`."""
        return crash_reason(self.lines)


class StderrReader:
    """Starts at once. tail: gets all of it. log: gets each line at level DEBUG."""

    def __init__(self, process: ChildProcess, tail: StderrTail, log: logging.Logger) -> None:
        self._task = asyncio.create_task(self._read(process, tail, log), name=f"stderr of {process.pid}")

    async def _read(self, process: ChildProcess, tail: StderrTail, log: logging.Logger) -> None:
        while data := await process.stderr.read(_READ):
            for line in tail.feed(data):
                log.debug("[%s] %s", process.pid, line)
        tail.close()

    async def close(self) -> None:
        """Call once the child has ended: the tail is complete then."""
        # A grandchild may hold stderr open after the child is gone.
        await asyncio.wait({self._task}, timeout=_AFTER_EXIT_S)
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


logger = logging.getLogger(__name__)

KEPT_S: Final = 60.0
"""A spare that no load takes costs memory for nothing."""


class SpareWorker:
    """One process at most, for the first load. Event loop only."""

    def __init__(self, *, kept_s: float = KEPT_S) -> None:
        self._kept_s = kept_s
        self._process: ChildProcess | None = None
        self._environment: Mapping[str, str] = {}
        self._expiry: asyncio.Task[None] | None = None

    async def start(self, command: Sequence[str], *, huge_pages: bool) -> None:
        """Returns once it is spawned, or at once if it runs with this setting already; else that one ends. A failure
        is left to the first load, which spawns its own."""
        environment = child_environment(os.environ, huge_pages=huge_pages)
        if self._process is not None:
            if environment == self._environment:
                return
            await self.close()
        try:
            process = await ChildProcess.spawn(command, environment)
        except OSError as error:
            logger.warning("no worker could be started in advance: %s", error.strerror)
            return
        self._process, self._environment = process, environment
        self._expiry = asyncio.create_task(self._expire(), name="expiry of the spare worker")

    def take(self, environment: Mapping[str, str]) -> ChildProcess | None:
        """The process, if it runs with this environment. The caller owns it then."""
        process = self._process
        if process is None or process.exited.is_set() or environment != self._environment:
            return None
        self._process = None
        if self._expiry is not None:
            self._expiry.cancel()
        return process

    async def close(self) -> None:
        """End it, unless it was taken. Returns once it is reaped."""
        if self._expiry is not None:
            if self._process is not None:  # else it was taken, or is being ended just now
                self._expiry.cancel()
            await asyncio.gather(self._expiry, return_exceptions=True)
        await self._end()

    async def _expire(self) -> None:
        await asyncio.sleep(self._kept_s)
        await self._end()

    async def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            await process.exited.wait()
            process.close()
