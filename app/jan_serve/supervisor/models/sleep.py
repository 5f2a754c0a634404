"""A server that gives its memory back for a while: no workers, and requests are refused until it is woken.

LMDeploy's two levels and two tags (`lmdeploy/serve/openai/api_server.py`). Level 1 keeps the prefix cache on disk,
level 2 nothing. Here a worker holds weights and context alike, so that memory is taken again when both tags are awake.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Final

from jan_serve.errors import Asleep, JanServeError
from jan_serve.supervisor.models.model_manager import ModelManager

logger = logging.getLogger(__name__)

TAGS: Final = frozenset({"weights", "kv_cache"})
MESSAGE: Final = "Engine is sleeping; call POST /wakeup before inference (e.g. tags=weights&tags=kv_cache)."
_DRAIN_S: Final = 0.2
"""For requests that were told to end; the others are not waited for."""


class Sleeper:
    """Puts a manager to sleep and wakes it. Event loop only; a sleep and what is called during it are done in turn."""

    def __init__(self, manager: ModelManager, forget_caches: Callable[[], None]) -> None:
        """forget_caches: deletes what is kept of prompts on disk; blocks, and is called in a thread."""
        self._manager = manager
        self._forget_caches = forget_caches
        self._asleep: frozenset[str] = frozenset()
        self._loaded: tuple[str, ...] = ()
        self._lock = asyncio.Lock()

    @property
    def is_sleeping(self) -> bool:
        """Whether requests are refused: until both tags are awake."""
        return bool(self._asleep)

    async def sleep(self, level: int) -> None:
        """End all workers. Requests that run then have a moment, and end with Asleep. Returns when memory is free.

        New requests are refused from the first moment on, before anything is waited for. Models that a wake is loading
        again are not waited for either.
        """
        # Only a sleep holds the lock while it waits, and everything is refused by then.
        async with self._lock:
            if not self._asleep:
                self._remember()
            self._asleep = TAGS
            await self._manager.suspend(Asleep(MESSAGE, retry_after=None), _DRAIN_S)
            if level > 1:
                await asyncio.to_thread(self._forget_caches)
            logger.info("asleep (level %d)", level)

    async def wake(self, tags: Iterable[str]) -> None:
        """Wake these parts; none means all. With the last one, models that were loaded are loaded again: waits for it.

        A tag that is not asleep changes nothing. A sleep that has begun ends first.
        """
        async with self._lock:
            wanted = frozenset(tags)
            unknown = wanted - self._asleep
            if unknown:
                logger.warning("not asleep, and so not woken: %s", ", ".join(sorted(unknown))[:200])
            was_asleep = self.is_sleeping
            self._asleep = self._asleep - wanted if wanted else frozenset()
            if not was_asleep or self._asleep:
                return
            self._manager.resume()
            loaded = self._loaded
        try:
            await asyncio.gather(*(self._load(name) for name in loaded))
        finally:
            if not self._asleep:
                self._loaded = ()
        if not self._asleep:
            logger.info("awake")

    def _remember(self) -> None:
        """What is loaded, and what a wake has still to load."""
        models = self._manager.snapshot().models
        present = (model.name for model in models if model.state in ("ready", "loading"))
        self._loaded = tuple(dict.fromkeys((*self._loaded, *present)))

    async def _load(self, name: str) -> None:
        try:
            await self._manager.load(name)
        except JanServeError as error:
            logger.warning("%s is not loaded after waking: %s", name, error.message)
