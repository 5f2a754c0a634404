"""Work as a task that does not outlive the block that waits for it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


@contextlib.asynccontextmanager
async def running(work: Coroutine[Any, Any, T]) -> AsyncGenerator[asyncio.Task[T]]:
    """The work as a task that ends with the block, its clean-up included."""
    task = asyncio.ensure_future(work)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
