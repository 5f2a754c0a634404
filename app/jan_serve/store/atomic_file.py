"""Writes small files whole: a reader sees the old content or the new one, also after a loss of power."""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path
from typing import Final

TEMPORARY_SUFFIX: Final = ".tmp"


def write_atomically(path: Path, content: bytes) -> None:
    """Replace `path` by a file with `content`. Makes missing folders. Blocks for two flushes to the disk.

    Raises OSError; `path` is then as it was.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(4)}{TEMPORARY_SUFFIX}")
    try:
        with temporary.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    flush_folder(path.parent)


def flush_folder(folder: Path) -> None:
    """Make renames in a folder durable. Windows has no such call and needs none."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
