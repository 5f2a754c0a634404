"""Token counts at the end of an answer, whatever its protocol: found in its last bytes, which pass unchanged. Pure."""

from __future__ import annotations

import re
from typing import Final

TAIL_BYTES: Final = 4096
_PROMPT: Final = re.compile(rb'(?<!\\)"(?:prompt_tokens|input_tokens|prompt_eval_count)"\s*:\s*(\d{1,12})')
_CACHED: Final = re.compile(rb'(?<!\\)"(?:cached_tokens|cache_read_input_tokens|cache_n)"\s*:\s*(\d{1,12})')
_BESIDE: Final = re.compile(rb'(?<!\\)"cache_read_input_tokens"\s*:\s*(\d{1,12})')
"""Anthropic counts these beside `input_tokens`; the others count them within the prompt."""


class UsageTail:
    """Add every part of an answer."""

    __slots__ = ("_tail",)

    def __init__(self) -> None:
        self._tail = b""

    def add(self, data: bytes) -> None:
        self._tail = data[-TAIL_BYTES:] if len(data) >= TAIL_BYTES else (self._tail + data)[-TAIL_BYTES:]

    @property
    def last(self) -> bytes:
        """The last bytes that were added."""
        return self._tail

    @property
    def prompt_tokens(self) -> int | None:
        found = _last(_PROMPT, self._tail)
        return None if found is None else found + (_last(_BESIDE, self._tail) or 0)

    @property
    def cached_tokens(self) -> int | None:
        return _last(_CACHED, self._tail)


def _last(pattern: re.Pattern[bytes], text: bytes) -> int | None:
    found = pattern.findall(text)
    return int(found[-1]) if found else None
