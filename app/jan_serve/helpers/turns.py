"""Who gets the next free process of a pool: clients take turns, and one client's requests keep roughly their order."""

from __future__ import annotations

import asyncio
import heapq
import time
from collections import OrderedDict
from collections.abc import Callable
from itertools import count
from typing import Final

_SECONDS_PER_BYTE: Final = 1e-6
_MOST_SECONDS: Final = 2.0
"""A large request counts as one that came later: small ones, which are soon done, pass it for this long at most."""

_Entry = tuple[float, int, asyncio.Future[None]]


class Turns:
    """A number of places. Clients that wait get a free one in turn; a new client joins at the end of the ring."""

    def __init__(self, places: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._free = places
        self._clock = clock
        self._numbers = count()
        self._waiting: OrderedDict[str, list[_Entry]] = OrderedDict()
        """By client, in the order of their turns: heaps of what waits."""

    async def take(self, client: str, size: int) -> None:
        """Wait for a place, which `leave` gives back. size: bytes of the request. Cancelling the call gives it up."""
        if self._free:
            self._free -= 1
            return
        rank = self._clock() + min(_MOST_SECONDS, size * _SECONDS_PER_BYTE)
        place = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting.setdefault(client, []), (rank, next(self._numbers), place))
        try:
            await place
        except asyncio.CancelledError:
            if not place.cancelled():  # it had come
                self.leave()
            raise

    def leave(self) -> None:
        while self._waiting:
            client, entries = self._waiting.popitem(last=False)
            _, _, place = heapq.heappop(entries)
            if entries:
                self._waiting[client] = entries  # its next turn comes after those of all others
            if not place.cancelled():
                place.set_result(None)
                return
        self._free += 1
