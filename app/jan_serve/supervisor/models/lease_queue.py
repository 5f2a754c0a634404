"""Requests that wait for a model, first come, first served. Event loop only."""

from __future__ import annotations

import asyncio
from typing import Generic, TypeVar

from jan_serve.core.models import ModelSource
from jan_serve.errors import JanServeError, copy_error

T = TypeVar("T")


class Waiter(Generic[T]):
    """One waiting request. `granted` gets its grant, or the error that rejects it."""

    def __init__(self, source: ModelSource, *, patient: bool) -> None:
        self.source = source
        self.patient = patient
        self.granted: asyncio.Future[T] = asyncio.get_running_loop().create_future()


class LeaseQueue(Generic[T]):
    """All waiting requests in order of arrival. A waiter leaves when it is granted, rejected or cancelled."""

    def __init__(self) -> None:
        self._waiters: list[Waiter[T]] = []

    def join(self, source: ModelSource, *, patient: bool = False) -> Waiter[T]:
        """patient: it waits through a back-off of any length."""
        waiter = Waiter[T](source, patient=patient)
        self._waiters.append(waiter)
        return waiter

    def leave(self, waiter: Waiter[T]) -> None:
        """No effect if it was granted or rejected already."""
        if waiter in self._waiters:
            self._waiters.remove(waiter)

    def sources(self) -> tuple[ModelSource, ...]:
        """The requested sources, without duplicates, oldest waiter first."""
        return tuple(dict.fromkeys(waiter.source for waiter in self._waiters))

    def waiting(self, name: str) -> int:
        return sum(waiter.source.name == name for waiter in self._waiters)

    def take(self, source: ModelSource, *, patient: bool = True) -> list[asyncio.Future[T]]:
        """Remove all waiters for this source; returns their open futures, oldest first. patient: patient ones too."""
        taken = [
            waiter for waiter in self._waiters if waiter.source == source and (patient or not waiter.patient)
        ]
        self._waiters = [waiter for waiter in self._waiters if waiter not in taken]
        return [waiter.granted for waiter in taken if not waiter.granted.done()]

    def refuse(self, source: ModelSource, error: JanServeError, *, patient: bool = True) -> None:
        """Remove waiters as `take` does, and fail each with the error."""
        for granted in self.take(source, patient=patient):
            granted.set_exception(copy_error(error))

    def __len__(self) -> int:
        return len(self._waiters)
