"""Sampled tokens to text to send: whole characters, stop strings applied, tokens with their text."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from jan_serve.core.events import TokenInfo
from jan_serve.text.stop import StopMatch, StopMatcher, TokenEndMatcher
from jan_serve.text.utf8 import Utf8Decoder


class Emission(NamedTuple):
    """Text and tokens to send now, and the stop string that ended the sequence, if one did."""

    text: str
    tokens: tuple[TokenInfo, ...]
    stop: str | None


class SequenceText:
    """The text of one sequence. A token is released together with its first character.

    After a stop string, tokens that start at or after the cut are dropped: the joined tokens equal the text, except for
    the end of a token that the cut divides.
    """

    def __init__(
        self,
        stops: tuple[str, ...],
        *,
        include_stop: bool,
        keep_tokens: bool,
        at_token_end: bool = False,
        free_tokens: int = 0,
    ) -> None:
        """at_token_end: see StopConditions.stop_at_token_end; no text is held back then.

        free_tokens: number of first tokens that are not searched for stop strings.
        """
        self._decoder = Utf8Decoder()
        self._matcher = StopMatcher(() if at_token_end else stops)
        self._token_ends = TokenEndMatcher(stops) if at_token_end else None
        self._include_stop = include_stop
        self._keep_tokens = keep_tokens
        self._free_tokens = free_tokens
        self._seen = 0
        self._emitted = 0
        self._waiting: deque[tuple[int, TokenInfo]] = deque()

    def push(self, piece: bytes, info: TokenInfo | None) -> Emission:
        """Add one token: its bytes (empty if it has no visible text), and its info if tokens are requested."""
        start = self._seen
        free = self._free_tokens > 0
        if free:
            self._free_tokens -= 1
        text = self._decoder.feed(piece)
        self._seen += len(text)
        if self._keep_tokens and info is not None:
            self._waiting.append((start, info))
        if not text:
            return Emission("", self._release(self._idle_at(start)), None)
        if free:
            self._matcher.skip(text)
            self._emitted += len(text)
            return Emission(text, self._release(self._idle_at(self._seen)), None)
        released, match = self._matcher.feed(text)
        if match is not None:
            return self._end(released, match)
        self._emitted += len(released)
        stop = self._token_ends.feed(released) if self._token_ends is not None else None
        return Emission(released, self._release(self._idle_at(self._seen)), stop)

    def finish(self, *, cut_off: bool = False) -> Emission:
        """Release the text held back, in which a stop string may still complete.

        cut_off: a limit ended the sequence, perhaps inside a character, which is left out; its tokens are not.
        """
        tail = self._decoder.finish(cut_off=cut_off)
        self._seen += len(tail)
        released, match = self._matcher.feed(tail) if tail else ("", None)
        if match is not None:
            return self._end(released, match)
        released += self._matcher.finish()
        self._emitted += len(released)
        tokens = tuple(info for _, info in self._waiting)
        self._waiting.clear()
        return Emission(released, tokens, None)

    def _idle_at(self, position: int) -> bool:
        """Whether all text before `position` is released, so that tokens without text need not wait."""
        return self._emitted == position and not self._decoder.pending

    def _release(self, idle: bool) -> tuple[TokenInfo, ...]:
        out: list[TokenInfo] = []
        while self._waiting and (self._waiting[0][0] < self._emitted or idle):
            out.append(self._waiting.popleft()[1])
        return tuple(out)

    def _end(self, released: str, match: StopMatch) -> Emission:
        if self._include_stop:
            released += match.stop
        cut = match.end if self._include_stop else match.start
        tokens = tuple(info for start, info in self._waiting if start < cut)
        self._waiting.clear()
        return Emission(released, tokens, match.stop)
