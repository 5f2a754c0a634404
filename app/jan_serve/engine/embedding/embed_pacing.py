"""Time for embeddings beside running streams. Pure but for the clock."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Final

from jan_serve.engine.scheduling.pacing import STREAM_SHARE, Pacer

LEAST_TOKENS: Final = Pacer.MIN_TOKENS


class EmbedPacing:
    """Says when the next batch of embeddings is due, and how large it may be. Belongs to the engine's thread.

    A batch takes about as long as streams owe it for their last step, and LEAST_TOKENS at least; the next one comes
    when the streams have had their share. What streams had before does not count for later.
    """

    def __init__(
        self, stream_share: float = STREAM_SHARE, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        """stream_share: of the time, while both have something to do; above 0 and below 1."""
        self._others = (1.0 - stream_share) / stream_share
        self._clock = clock
        self._owed_s = 0.0  # to the streams, before the next batch
        self._step_s = self._token_s = 0.0

    def room(self, *, has_streams: bool, most: int) -> int:
        """Tokens that a batch of embeddings may have now; 0: the streams go first. most: where nothing is written."""
        if not has_streams:
            self._owed_s = 0.0
            return most
        if self._owed_s > 0:
            return 0
        fitting = int(self._step_s * self._others / self._token_s) if self._token_s else 0
        return min(most, max(LEAST_TOKENS, fitting))

    @contextmanager
    def step(self) -> Generator[None]:
        """Around a step of the streams."""
        began = self._clock()
        yield
        self._step_s = self._clock() - began
        self._owed_s -= self._step_s

    @contextmanager
    def batch(self, room: int) -> Generator[None]:
        """Around a batch of embeddings of about so many tokens."""
        began = self._clock()
        yield
        took = self._clock() - began
        self._token_s = took / room
        self._owed_s = took / self._others
