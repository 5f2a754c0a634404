"""Reads small files, writes them atomically and durably, and notices without reading a file that it changed.

After a power loss, a file has the old or the new content. Also files and folders that nobody but this user may read.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
import sys
from pathlib import Path
from typing import Final

TEMPORARY_SUFFIX: Final = ".tmp"
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)


class TooLarge(ValueError):
    """The text is the end of a sentence about the file."""


def read_limited(path: Path, max_bytes: int) -> bytes:
    """The content of a file, which may be a device without an end. Raises OSError, TooLarge."""
    with path.open("rb") as file:
        content = file.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise TooLarge(f"is larger than {max_bytes} bytes")
    return content


def write_atomically(path: Path, content: bytes, *, mode: int | None = None) -> None:
    """Replace `path` by a file with `content`. Creates missing folders. Blocks for two flushes to the disk.

    mode: the file's permissions, set before it becomes visible; None is the default. On Windows the folder determines
    them. Replaces a link, not its target. Raises OSError: `path` is then unchanged, or
    has the new content if only the flush of the folder failed.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(4)}{TEMPORARY_SUFFIX}")
    try:
        with open(os.open(temporary, _NEW, 0o666 if mode is None else 0o600), "wb") as file:
            file.write(content)
            file.flush()
            if mode is not None and sys.platform != "win32":
                os.fchmod(file.fileno(), stat.S_IMODE(mode))
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    flush_folder(path.parent)


def private_folder(path: Path) -> None:
    """Create a folder, with those above it, that this user alone may enter. One that is there stays as it is.

    Blocks. Raises OSError.
    """
    for folder in (*reversed(path.parents), path):
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=0o700)
    path.mkdir(exist_ok=True)  # raises if a file is in the way


def private_opener(path: str, flags: int) -> int:
    """An opener: a new file is this user's alone from the first byte; one that is there keeps its permissions."""
    return os.open(path, flags, 0o600)


def flush_folder(folder: Path) -> None:
    """Make renames in a folder durable. Does nothing on Windows, which needs no such call."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def file_stamp(path: Path) -> tuple[int, int] | None:
    """Modification time (ns) and size (bytes); None if the file cannot be read."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size
