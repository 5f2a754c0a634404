"""Closes an async iterator that may or may not be a generator."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeVar

T = TypeVar("T")


@asynccontextmanager
async def closing(iterator: AsyncIterator[T]) -> AsyncGenerator[AsyncIterator[T]]:
    """Run the iterator's `aclose()` at the end of the block, if it has one: an abandoned generator closes too late."""
    try:
        yield iterator
    finally:
        aclose = getattr(iterator, "aclose", None)
        if aclose is not None:
            await aclose()
