"""A state cache on disk whose reads end when a test wants it."""

from __future__ import annotations

from concurrent.futures import Future

import numpy as np

from jan_serve.engine.cache.state_cache import SavedState, StateCache, StateMatch
from jan_serve.engine.cache.state_files import StateFiles


class ReadLater(StateCache):
    """started: the first tokens of the states whose reads have begun."""

    def __init__(self, ram: int, files: StateFiles) -> None:
        super().__init__(ram, files)
        self.started: list[int] = []
        self._running: list[tuple[StateMatch, Future[SavedState | None]]] = []

    def fetch(self, match: StateMatch) -> Future[SavedState | None]:
        future: Future[SavedState | None] = Future()
        self.started.append(int(match.source.tokens[0]))
        self._running.append((match, future))
        return future

    def end_one(self) -> None:
        match, future = self._running.pop(0)
        future.set_result(SavedState(match.source.tokens, np.zeros(10, np.uint8)))
