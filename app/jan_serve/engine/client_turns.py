"""Work of several clients, taken by turns."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Set
from typing import Generic, TypeVar

T = TypeVar("T")


class ClientTurns(Generic[T]):
    """Items of one client are taken in order; each client that has any waits for one item of each other client."""

    def __init__(self) -> None:
        self._queues: dict[str, deque[T]] = {}

    def __bool__(self) -> bool:
        return bool(self._queues)

    @property
    def clients(self) -> Set[str]:
        """Clients that have items."""
        return self._queues.keys()

    def drop(self, is_meant: Callable[[T], bool]) -> None:
        kept = (
            (client, [item for item in items if not is_meant(item)]) for client, items in self._queues.items()
        )
        self._queues = {client: deque(items) for client, items in kept if items}

    def put(self, client: str, item: T) -> None:
        self._queues.setdefault(client, deque()).append(item)

    def take(self) -> T:
        """Remove the next item. Raises StopIteration without any."""
        client = next(iter(self._queues))
        items = self._queues.pop(client)
        item = items.popleft()
        if items:
            self._queues[client] = items  # behind all others
        return item
