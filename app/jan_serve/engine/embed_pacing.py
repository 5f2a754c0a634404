"""Time for embeddings beside running streams. Pure but for the clock."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Final

from jan_serve.engine.input_pooling import PIECE_TOKENS

STREAMS_SHARE: Final = 0.6
"""Of the time, while both have something to do."""
TOKENS_BESIDE_STREAMS: Final = 16
"""As many as the least piece of a prompt (Pacer.MIN_TOKENS): streams wait for a batch."""


class EmbedPacing:
    """Says when the next batch of embeddings is due, and how large it may be. Belongs to the engine's thread."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._owed_s = 0.0  # to the streams, before the next batch

    def room(self, *, has_streams: bool) -> int:
        """Tokens that a batch of embeddings may have now; 0: the streams go first."""
        if not has_streams:
            self._owed_s = 0.0
            return PIECE_TOKENS
        return 0 if self._owed_s > 0 else TOKENS_BESIDE_STREAMS

    @contextmanager
    def step(self) -> Generator[None]:
        """Around a step of the streams."""
        began = self._clock()
        yield
        self._owed_s -= self._clock() - began

    @contextmanager
    def batch(self) -> Generator[None]:
        """Around a batch of embeddings. What streams had before does not count for later."""
        began = self._clock()
        yield
        took = self._clock() - began
        self._owed_s = took * STREAMS_SHARE / (1 - STREAMS_SHARE)
