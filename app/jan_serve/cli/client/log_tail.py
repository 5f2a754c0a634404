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
    file = _open(path)
    if file is None:
        return _filled([], path, n_lines)
    with file:
        lines, rest = _tail(file, n_lines)
    shown = [*lines, rest.decode("utf-8", "replace")] if rest else lines
    return _filled(shown, path, n_lines)


def follow_lines(
    path: Path, n_lines: int, wait: Callable[[], None] | None = None
) -> tuple[list[str], Generator[str]]:
    """The last lines, and every whole line that is written after them; the second never ends. Raises OSError.

    No line is left out between the two, and none is in both. wait: between two looks; by default it sleeps. The file
    need not exist yet. When it is renamed, what was still written to it comes before the new one's lines.
    """
    file = _open(path)
    lines, rest = ([], b"") if file is None else _tail(file, n_lines)
    pause = wait or (lambda: time.sleep(_LOOK_EVERY_S))
    return _filled(lines, path, n_lines), _next_lines(path, file, rest, pause)


def _next_lines(path: Path, file: BinaryIO | None, rest: bytes, pause: Callable[[], None]) -> Generator[str]:
    """From where the file stands. rest: the beginning of a line that was read already."""
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


def _tail(file: BinaryIO, n_lines: int) -> tuple[list[str], bytes]:
    """The last whole lines, and what stands behind them. The file is then read to its end."""
    size = file.seek(0, os.SEEK_END)
    start = max(0, size - _MAX_TAIL_BYTES)
    file.seek(start)
    *whole, rest = file.read().split(b"\n")
    # The first one may have lost its beginning.
    last = deque(whole[1:] if start else whole, maxlen=n_lines)
    return [line.decode("utf-8", "replace") for line in last], rest


def _filled(lines: list[str], path: Path, n_lines: int) -> list[str]:
    """So many lines, the missing ones from the file before."""
    missing = n_lines - len(lines)
    if missing <= 0:
        return lines[-missing:]
    before = _open(path.with_name(path.name + ".1"))
    if before is None:
        return lines
    with before:
        return [*_tail(before, missing)[0], *lines]
