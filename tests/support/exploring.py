"""Random interleavings on a virtual clock: one seed is one run, the same each time, with no thread or process.

What real I/O and other tasks do to the order of things is drawn: `Draws.moment` waits for a random number of turns of
the event loop, and for random virtual time. A run in which nothing can happen any more, a deadlock, fails in
`run_jumping`.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

import pytest

from tests.support.jumping_loop import run_jumping

P = ParamSpec("P")
T = TypeVar("T")


class Draws(random.Random):
    """What one run draws from."""

    async def moment(self, longest_s: float = 0.0) -> None:
        """Some turns of the event loop; with a time, most often that too."""
        for _ in range(self.randrange(4)):
            await asyncio.sleep(0)
        if longest_s and self.random() < 0.8:
            await asyncio.sleep(self.uniform(0, longest_s))

    async def in_a_thread(self, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """In place of asyncio.to_thread: here, after a moment. Like a thread, it is not stopped by a cancellation."""
        await self.moment(0.01)
        return call(*args, **kwargs)


def explore(
    scenario: Callable[[Draws], Coroutine[Any, Any, None]], seed: int, patch: pytest.MonkeyPatch
) -> None:
    """One run of the scenario. Fails with the seed."""
    draws = Draws(seed)
    patch.setattr(asyncio, "to_thread", draws.in_a_thread)
    try:
        run_jumping(scenario(draws))
    except BaseException as error:
        error.add_note(f"seed {seed}")
        raise
