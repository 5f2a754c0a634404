"""A task that ends with a block."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


@contextlib.asynccontextmanager
async def running(work: Coroutine[Any, Any, T]) -> AsyncGenerator[asyncio.Task[T]]:
    """Run a coroutine as a task; the end of the block cancels it and waits for its clean-up."""
    task = asyncio.ensure_future(work)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
