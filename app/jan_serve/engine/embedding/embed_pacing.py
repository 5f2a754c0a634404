"""Divides time between embeddings and running streams. Pure except for the clock."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Final

STREAM_SHARE: Final = 0.7
MIN_TOKENS: Final = 16


class EmbedPacing:
    """Decides when the next batch of embeddings runs, and its size. For the engine thread.

    A batch takes the time that the streams' last step earned it, and MIN_TOKENS at least. The next one runs once the
    streams have had their share. Earlier time of the streams alone does not count.
    """

    def __init__(
        self, stream_share: float | None = None, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        """stream_share: of the time while both have work; above 0 and below 1; None: STREAM_SHARE."""
        stream_share = stream_share or STREAM_SHARE
        self._embed_ratio = (1.0 - stream_share) / stream_share
        self._clock = clock
        self._owed_s = 0.0  # to the streams before the next batch
        self._step_s = self._token_s = 0.0

    def room(self, *, has_streams: bool, limit: int) -> int:
        """Max tokens of a batch now; 0: the streams go first. limit: without streams."""
        if not has_streams:
            self._owed_s = 0.0
            return limit
        if self._owed_s > 0:
            return 0
        fitting = int(self._step_s * self._embed_ratio / self._token_s) if self._token_s else 0
        return min(limit, max(MIN_TOKENS, fitting))

    @contextmanager
    def step(self) -> Generator[None]:
        began = self._clock()
        yield
        self._step_s = self._clock() - began
        self._owed_s -= self._step_s

    @contextmanager
    def batch(self, room: int) -> Generator[None]:
        """Times a batch of embeddings of about `room` tokens."""
        began = self._clock()
        yield
        seconds = self._clock() - began
        self._token_s = seconds / room
        self._owed_s = seconds / self._embed_ratio
