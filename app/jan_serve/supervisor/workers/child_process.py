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
import signal
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

from jan_serve.ipc.child_pipe import PARENT_VARIABLE

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
        from jan_serve.supervisor.workers.crash_reason import crash_reason  # only ends need it

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
