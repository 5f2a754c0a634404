"""Requests that wait for their model to be loaded, first come first served. Used on the event loop only."""

from __future__ import annotations

import asyncio
from typing import Generic, TypeVar

from jan_serve.core.model_source import ModelSource
from jan_serve.errors import JanServeError, copy_error

T = TypeVar("T")


class Waiter(Generic[T]):
    """One waiting request. `granted` gets what it waits for, or the error that refuses it."""

    def __init__(self, source: ModelSource) -> None:
        self.source = source
        self.granted: asyncio.Future[T] = asyncio.get_running_loop().create_future()


class LeaseQueue(Generic[T]):
    """All waiting requests in order of arrival. A waiter leaves by being granted, refused or cancelled."""

    def __init__(self) -> None:
        self._waiters: list[Waiter[T]] = []

    def join(self, source: ModelSource) -> Waiter[T]:
        """Wait behind everybody."""
        waiter = Waiter[T](source)
        self._waiters.append(waiter)
        return waiter

    def leave(self, waiter: Waiter[T]) -> None:
        """Give up the place; nothing if it was granted or refused already."""
        if waiter in self._waiters:
            self._waiters.remove(waiter)

    def sources(self) -> tuple[ModelSource, ...]:
        """What is waited for, each once, by the age of its oldest waiter."""
        return tuple(dict.fromkeys(waiter.source for waiter in self._waiters))

    def waiting(self, name: str) -> int:
        """How many wait for the model of this name."""
        return sum(waiter.source.name == name for waiter in self._waiters)

    def take(self, source: ModelSource) -> list[asyncio.Future[T]]:
        """Remove all that wait for this source; return their open futures, oldest first."""
        taken = [waiter for waiter in self._waiters if waiter.source == source]
        self._waiters = [waiter for waiter in self._waiters if waiter.source != source]
        return [waiter.granted for waiter in taken if not waiter.granted.done()]

    def refuse(self, source: ModelSource, error: JanServeError) -> None:
        """Remove all that wait for this source and give each the error."""
        for granted in self.take(source):
            granted.set_exception(copy_error(error))

    def __len__(self) -> int:
        return len(self._waiters)
