"""What the store does with the disk besides downloading: room, digests, threads for slow calls, errors for people."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, Final, TypeVar

from jan_serve.errors import InsufficientStorage, StoreError

_HASH_STEP_BYTES: Final = 8 << 20
_LARGEST_RESERVE: Final = 256 << 20
_NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})

T = TypeVar("T")


def storage_error(error: OSError, folder: Path) -> StoreError:
    """What a failure to write below `folder` means for people."""
    if error.errno in _NO_ROOM:
        return InsufficientStorage(f"The disk is full: no more can be written to {folder}.")
    return StoreError(f"Cannot write to {folder}: {error.strerror or error}.")


def check_room(folder: Path, n_bytes: int) -> None:
    """Raises InsufficientStorage where `n_bytes` more would fill the disk of `folder` up, which need not exist yet."""
    existing = next((path for path in (folder, *folder.parents) if path.exists()), None)
    if existing is None:
        return
    usage = shutil.disk_usage(existing)
    reserve = min(_LARGEST_RESERVE, usage.total // 50)
    if n_bytes + reserve > usage.free:
        raise InsufficientStorage(
            f"This needs {n_bytes / 1e9:.2f} GB (and {reserve / 1e9:.2f} GB to spare), but only"
            f" {usage.free / 1e9:.2f} GB are free on the disk of {folder}."
        )


async def is_there(path: Path, size_bytes: int, sha256: str) -> bool:
    """Whether the file is there and has this size and digest. Reads the whole file if its size is right."""
    try:
        if path.stat().st_size != size_bytes:
            return False
        with path.open("rb") as file:
            hasher = hashlib.sha256()
            await feed(file, hasher.update, size_bytes)
    except OSError:
        return False
    return hasher.hexdigest() == sha256


async def feed(file: BinaryIO, update: Callable[[bytes], None], count: int) -> None:
    """Give the next `count` bytes of a file to a hash, in steps that a cancel can come between."""
    left = count

    def step() -> int:
        block = file.read(min(left, _HASH_STEP_BYTES))
        update(block)
        return len(block)

    while left:
        n_read = await in_thread(step)
        if n_read == 0:
            raise OSError(errno.EIO, "the file became shorter while it was read")
        left -= n_read


async def in_thread(work: Callable[[], T]) -> T:
    """`work` in a thread, to its end also when cancelled: it holds a file that the caller is about to close."""
    task = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        if not task.cancelled():
            task.exception()
        raise
