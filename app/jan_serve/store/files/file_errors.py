"""Turns errors of the system at files into errors of jan-serve, and checks for room on a disk before it is used.

`raise_if_exhausted` is for errors that say nothing about the file that was opened.
"""

from __future__ import annotations

import errno
import shutil
from pathlib import Path
from typing import Final

from jan_serve.errors import InsufficientStorage, StoreError, shortage

_MAX_RESERVE: Final = 256 << 20
_NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def storage_error(error: OSError, folder: Path) -> StoreError:
    """The StoreError for a failure to write below `folder`. Raises Unavailable as `raise_if_exhausted`."""
    raise_if_exhausted(error)
    if is_full(error):
        return InsufficientStorage(f"The disk is full: no more can be written to {folder}.")
    return StoreError(f"Cannot write to {folder}: {error.strerror or error}.")


def is_full(error: OSError) -> bool:
    """Whether the disk or the user's share of it is full, or the file is longer than the file system allows."""
    return error.errno in _NO_ROOM


def check_room(folder: Path, n_bytes: int) -> None:
    """Raises InsufficientStorage if `n_bytes` more would fill the disk of `folder`, which may not exist yet."""
    existing = next((path for path in (folder, *folder.parents) if path.exists()), None)
    if existing is None:
        return
    usage = shutil.disk_usage(existing)
    reserve = min(_MAX_RESERVE, usage.total // 50)
    if n_bytes + reserve > usage.free:
        raise InsufficientStorage(
            f"This needs {n_bytes / 1e9:.2f} GB (and {reserve / 1e9:.2f} GB to spare), but only"
            f" {usage.free / 1e9:.2f} GB are free on the disk of {folder}."
        )


def raise_if_exhausted(error: OSError) -> None:
    """Raises Unavailable if this process has no file descriptor or memory left: what is missing then may be there."""
    if (lacking := shortage(error)) is not None:
        raise lacking from error
