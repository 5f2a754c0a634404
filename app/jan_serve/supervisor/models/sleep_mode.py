"""Sleep mode: frees all memory by ending the workers, and rejects requests until the server is woken.

LMDeploy's two levels and two tags (`lmdeploy/serve/openai/api_server.py`). Level 1 keeps the prefix cache on disk,
level 2 deletes it. A worker holds both weights and context, so memory is allocated again once both tags are awake.
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
"""Grace period for running requests."""


class Sleeper:
    """Suspends and resumes a model manager. Event loop only; calls during a sleep run after it, in turn."""

    def __init__(self, manager: ModelManager, delete_caches: Callable[[], None]) -> None:
        """delete_caches: deletes the prefix caches on disk; blocks, called in a thread."""
        self._manager = manager
        self._delete_caches = delete_caches
        self._asleep: frozenset[str] = frozenset()
        self._loaded: tuple[str, ...] = ()
        self._lock = asyncio.Lock()

    @property
    def is_sleeping(self) -> bool:
        """Whether requests are rejected: until both tags are awake."""
        return bool(self._asleep)

    async def sleep(self, level: int) -> None:
        """End all workers; running requests have a grace period, then fail with Asleep. Returns when memory is free.
        New requests are rejected at once. It does not wait for the loads of an earlier wake."""
        # Only a sleep waits while it holds the lock, and requests are rejected by then.
        async with self._lock:
            if not self._asleep:
                # With those that an earlier wake has still to load.
                models = self._manager.snapshot().models
                present = (model.name for model in models if model.state in ("ready", "loading"))
                self._loaded = tuple(dict.fromkeys((*self._loaded, *present)))
            self._asleep = TAGS
            await self._manager.suspend(Asleep(MESSAGE, retry_after=None), _DRAIN_S)
            if level > 1:
                await asyncio.to_thread(self._delete_caches)
            logger.info("asleep (level %d)", level)

    async def wake(self, tags: Iterable[str]) -> None:
        """Wake these parts; none means all. The last one reloads the models that were loaded, and waits for them.
        Tags that are awake are ignored. A sleep in progress finishes first."""
        async with self._lock:
            wanted = frozenset(tags)
            unknown = wanted - self._asleep
            if unknown:
                logger.warning("cannot wake what is not asleep: %s", ", ".join(sorted(unknown))[:200])
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

    async def _load(self, name: str) -> None:
        try:
            await self._manager.load(name)
        except JanServeError as error:
            logger.warning("cannot load %s after waking: %s", name, error.message)
