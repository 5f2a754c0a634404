"""The last lines of the log file, and the next ones as they come, over renames and restarts of the server."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Generator
from pathlib import Path
from typing import BinaryIO, Final

_LOOK_EVERY_S: Final = 0.25
_MAX_TAIL_BYTES: Final = 4 << 20


def last_lines(path: Path, n_lines: int) -> list[str]:
    """The last lines of the file and, where it has too few, of the one before. Raises OSError."""
    lines: list[str] = []
    for part in (path, path.with_name(path.name + ".1")):
        if len(lines) < n_lines and part.is_file():
            lines = [*_tail(part, n_lines - len(lines)), *lines]
    return lines


def next_lines(path: Path, wait: Callable[[], None] | None = None) -> Generator[str]:
    """Every whole line that is written from now on; never ends. wait: between two looks; by default it sleeps.

    The file need not exist yet. When it is renamed, what was still written to it comes before the new one's lines.
    """
    pause = wait or (lambda: time.sleep(_LOOK_EVERY_S))
    file = _open(path)
    if file is not None:
        file.seek(0, os.SEEK_END)
    rest = b""
    try:
        while True:
            if file is None:
                file = _open(path)
            data = file.read() if file is not None else b""
            if data:
                *whole, rest = (rest + data).split(b"\n")
                yield from (line.decode("utf-8", "replace") for line in whole)
                continue
            if file is not None and _is_replaced(file, path):
                file.close()
                file, rest = _open(path), b""
                continue
            pause()
    finally:
        if file is not None:
            file.close()


def _open(path: Path) -> BinaryIO | None:
    try:
        return path.open("rb")
    except FileNotFoundError:
        return None


def _is_replaced(file: BinaryIO, path: Path) -> bool:
    """Whether the path means another file by now, or the same one was cut."""
    try:
        now = path.stat()
    except FileNotFoundError:
        return False
    ours = os.fstat(file.fileno())
    return (now.st_dev, now.st_ino) != (ours.st_dev, ours.st_ino) or now.st_size < file.tell()


def _tail(path: Path, n_lines: int) -> list[str]:
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        start = max(0, size - _MAX_TAIL_BYTES)
        file.seek(start)
        lines = file.read(_MAX_TAIL_BYTES).decode("utf-8", "replace").splitlines()
    # The first one may have lost its beginning.
    return list(deque(lines[1:] if start else lines, maxlen=n_lines))
