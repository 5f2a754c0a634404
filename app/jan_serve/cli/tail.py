"""Reads the end of a log file and follows it across rotation and restarts, like `tail -F`."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Generator
from pathlib import Path
from typing import BinaryIO, Final

_POLL_S: Final = 0.25
_MAX_TAIL_BYTES: Final = 4 << 20


def last_lines(path: Path, n_lines: int) -> list[str]:
    """The last lines of the file and, if it has too few, of its predecessor `.1`. Raises OSError."""
    file = _open(path)
    if file is None:
        return _fill_up([], path, n_lines)
    with file:
        lines, rest = _tail(file, n_lines)
    shown = [*lines, rest.decode("utf-8", "replace")] if rest else lines
    return _fill_up(shown, path, n_lines)


def follow_lines(
    path: Path, n_lines: int, wait: Callable[[], None] | None = None
) -> tuple[list[str], Generator[str]]:
    """The last lines, and an endless generator of the complete lines written after them. Raises OSError.

    No line is lost or repeated between the two. wait: called between two polls; sleeps by default. The file need not
    exist yet. After a rename, the rest of the old file precedes the lines of the new one.
    """
    file = _open(path)
    lines, rest = ([], b"") if file is None else _tail(file, n_lines)
    pause = wait or (lambda: time.sleep(_POLL_S))
    return _fill_up(lines, path, n_lines), _next_lines(path, file, rest, pause)


def _next_lines(path: Path, file: BinaryIO | None, rest: bytes, pause: Callable[[], None]) -> Generator[str]:
    """Starts at the position of `file`. rest: the part of an incomplete line that was read before."""
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
    """Whether the path now names another file, or the file was truncated."""
    try:
        current = path.stat()
    except FileNotFoundError:
        return False
    opened = os.fstat(file.fileno())
    same = (current.st_dev, current.st_ino) == (opened.st_dev, opened.st_ino)
    return not same or current.st_size < file.tell()


def _tail(file: BinaryIO, n_lines: int) -> tuple[list[str], bytes]:
    """The last complete lines, and the incomplete line after them. Reads the file to its end."""
    size = file.seek(0, os.SEEK_END)
    start = max(0, size - _MAX_TAIL_BYTES)
    file.seek(start)
    *whole, rest = file.read().split(b"\n")
    # The first line may be cut.
    last = deque(whole[1:] if start else whole, maxlen=n_lines)
    return [line.decode("utf-8", "replace") for line in last], rest


def _fill_up(lines: list[str], path: Path, n_lines: int) -> list[str]:
    """The last n_lines; missing ones come from the rotated file."""
    missing = n_lines - len(lines)
    if missing <= 0:
        return lines[-missing:]
    rotated = _open(path.with_name(path.name + ".1"))
    if rotated is None:
        return lines
    with rotated:
        return [*_tail(rotated, missing)[0], *lines]
