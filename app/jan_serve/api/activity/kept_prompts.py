"""Which rendered prompts stay: those of the latest requests, if `keep_prompts` says so. In memory, never logged."""

from __future__ import annotations

import sys
from collections import deque
from typing import Final

from jan_serve.core.trace import KeptPrompt, RequestTrace

MAX_BYTES: Final = 64 << 20
"""Of the prompts of all requests that have ended."""
_ID_BYTES: Final = 32


class KeptPrompts:
    """For one event loop. Older prompts leave first: those over the number, and those over the bytes."""

    def __init__(self, number: int, max_bytes: int = MAX_BYTES) -> None:
        self._number = number
        self._max_bytes = max_bytes
        self._kept: deque[tuple[RequestTrace, int]] = deque()
        self._bytes = 0

    def begin(self, trace: RequestTrace) -> None:
        if self._number:
            trace.prompts = []

    def end(self, trace: RequestTrace) -> None:
        size = sum(_bytes_of(prompt) for prompt in trace.prompts or ())
        if not size:
            return
        self._kept.append((trace, size))
        self._bytes += size
        while len(self._kept) > self._number or self._bytes > self._max_bytes:
            oldest, size = self._kept.popleft()
            oldest.prompts = None
            self._bytes -= size


def _bytes_of(prompt: KeptPrompt) -> int:
    return sum(
        sys.getsizeof(piece) + (_ID_BYTES * len(piece) if isinstance(piece, tuple) else 0)
        for piece in prompt.pieces
    )
