"""SHA-256 of files in threads, with cancellation between blocks."""

from __future__ import annotations

import asyncio
import errno
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, Final, TypeVar

_HASH_STEP_BYTES: Final = 8 << 20

T = TypeVar("T")


async def file_matches(path: Path, size_bytes: int, sha256: str) -> bool:
    """Whether the file exists with this size and digest. Reads the whole file if the size matches."""
    try:
        if path.stat().st_size != size_bytes:
            return False
        with path.open("rb") as file:
            hasher = hashlib.sha256()
            await hash_bytes(file, hasher.update, size_bytes)
    except OSError:
        return False
    return hasher.hexdigest() == sha256


async def hash_bytes(file: BinaryIO, update: Callable[[bytes], None], count: int) -> None:
    """Hash the next `count` bytes of a file in blocks, between which the task can be cancelled."""
    remaining = count

    def step() -> int:
        block = file.read(min(remaining, _HASH_STEP_BYTES))
        update(block)
        return len(block)

    while remaining:
        n_read = await in_thread(step)
        if n_read == 0:
            raise OSError(errno.EIO, "the file became shorter while it was read")
        remaining -= n_read


async def in_thread(work: Callable[[], T]) -> T:
    """Run `work` in a thread, to completion even if cancelled: it uses a file that the caller then closes."""
    task = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        if not task.cancelled():
            task.exception()
        raise
