"""Prompt lookup decoding (Saxena 2023; llama.cpp's `lookup`): drafts a continuation from earlier text. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec
import numpy as np

from jan_serve.engine.tokens import Tokens, only_tokens

MIN_MATCH = 3  # tokens that must match before a guess
MAX_DRAFT = 32
_MAX_MATCH = 32
_CANDIDATES = 8
# Only the end of a longer prompt is searched: a position in the index takes about a hundred bytes.
_MAX_INDEXED = 32_768
_ID_BITS = 21
_KEY_MASK = (1 << (_ID_BITS * MIN_MATCH)) - 1


class Guess(msgspec.Struct, frozen=True):
    """A continuation, and the number of matching tokens before it."""

    tokens: Tokens
    match_length: int


class TokenHistory:
    """The tokens of a sequence and the positions of each run of MIN_MATCH tokens: a hash chain, as in LZ77 coders.
    Adding a token and looking up a run take constant time."""

    __slots__ = ("_earlier", "_latest", "_num_seen", "key", "tokens")

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self._num_seen = 0
        self.key = 0
        # A position is the one after a run. The previous position with the same run as p is earlier[p].
        self._latest: dict[int, int] = {}
        self._earlier: list[int] = [-1] * MIN_MATCH

    def catch_up(self, tokens: Tokens) -> None:
        """Append the tokens added since the last call, without placeholders. `tokens` must only have grown."""
        new = tokens[self._num_seen :]
        self._num_seen = len(tokens)
        for token in only_tokens(new)[-_MAX_INDEXED:].tolist():
            self.tokens.append(token)
            self.key = (self.key << _ID_BITS | token) & _KEY_MASK
            position = len(self.tokens)
            if position >= MIN_MATCH:
                self._earlier.append(self._latest.get(self.key, -1))
                self._latest[self.key] = position

    def positions(self, key: int) -> Iterator[int]:
        """The positions after the latest occurrences of a run, latest first."""
        position = self._latest.get(key, -1)
        for _ in range(_CANDIDATES + 1):
            if position < 0:
                return
            yield position
            position = self._earlier[position]


def guess(history: TokenHistory, others: Iterable[TokenHistory] = ()) -> Guess | None:
    """The continuation of the longest earlier match of the sequence's end: in itself, otherwise in `others`. Of equally
    long matches the latest. At most MAX_DRAFT tokens."""
    if len(history.tokens) < MIN_MATCH:
        return None
    found = (_search(history.tokens, history.key, source) for source in (history, *others))
    return next((guess for guess in found if guess is not None), None)


def _search(tokens: list[int], key: int, source: TokenHistory) -> Guess | None:
    best, best_length = -1, 0
    for position in source.positions(key):
        # A match at the end of the source has no continuation.
        if position >= len(source.tokens):
            continue
        length = _match_length(tokens, source.tokens, position)
        if length > best_length:
            best, best_length = position, length
    if best < 0:
        return None
    return Guess(np.array(source.tokens[best : best + MAX_DRAFT], np.int32), best_length)


def _match_length(tokens: list[int], source: list[int], position: int) -> int:
    """Number of equal tokens at the end of `tokens` and before `position` in `source`, up to _MAX_MATCH."""
    limit = min(len(tokens), position, _MAX_MATCH)
    count = MIN_MATCH
    while count < limit and tokens[-1 - count] == source[position - 1 - count]:
        count += 1
    return count
