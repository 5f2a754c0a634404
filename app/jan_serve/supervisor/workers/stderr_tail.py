"""The last lines of the stderr of a worker or a helper, sanitised.

Native code writes there: its text may contain terminal escapes, file paths and addresses. `lines` is for the log,
`last_words` for HTTP clients. All of it is read: a full pipe would block the child.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import Final

from jan_serve.supervisor.workers.child_process import ChildProcess

MAX_LINES = 50
MAX_LINE_CHARS = 400
_READ: Final = 64 * 1024
_AFTER_EXIT_S: Final = 0.5


def sanitise(text: str) -> str:
    """One line with control, format and unassigned characters escaped, cut at MAX_LINE_CHARS."""
    cut = text[:MAX_LINE_CHARS]
    safe = "".join(
        char if char.isprintable() else f"\\x{ord(char):02x}" for char in cut.replace("\t", "    ")
    )
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
        """Lines kept, oldest first."""
        return tuple(self._lines)

    def last_words(self) -> str:
        """The reason of a crash, safe to show; see `crash_reason`."""
        from jan_serve.supervisor.workers.crash_reason import crash_reason  # only ends need it

        return crash_reason(self.lines)


class StderrReader:
    """Starts at once. tail: gets all of it. log: gets each line at level DEBUG."""

    def __init__(self, process: ChildProcess, tail: StderrTail, log: logging.Logger) -> None:
        self._task = asyncio.create_task(_read(process, tail, log), name=f"stderr of {process.pid}")

    async def close(self) -> None:
        """Call once the child has ended: the tail is complete then."""
        # A grandchild may hold stderr open after the child is gone.
        await asyncio.wait({self._task}, timeout=_AFTER_EXIT_S)
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


async def _read(process: ChildProcess, tail: StderrTail, log: logging.Logger) -> None:
    while data := await process.stderr.read(_READ):
        for line in tail.feed(data):
            log.debug("[%s] %s", process.pid, line)
    tail.close()
