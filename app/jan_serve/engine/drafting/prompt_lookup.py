"""Guesses what a sequence says next from what was said before: prompt lookup decoding (n-gram speculation).

The guess is a draft: it is computed with the newest token in one batch, and only what the sampler picks anyway is kept,
so that an answer does not depend on it. Saxena 2023, "Prompt Lookup Decoding"; llama.cpp's `lookup` example.
Pure: it reads tokens.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from jan_serve.engine.tokens import Tokens

MIN_MATCH = 3
"""Tokens that must agree before a guess."""
MAX_DRAFT = 32
_MAX_MATCH = 32
_CANDIDATES = 8
# Of a longer prompt only the end is searched: a place in the index takes about a hundred bytes.
_MAX_INDEXED = 32_768
_ID_BITS = 21
_KEY_MASK = (1 << (_ID_BITS * MIN_MATCH)) - 1


@dataclass(frozen=True, slots=True)
class Guess:
    """A continuation, and how many tokens before it agree with the sequence."""

    tokens: Tokens
    agreement: int


class TokenHistory:
    """The tokens of a sequence, and where each run of MIN_MATCH of them occurred: a hash chain, as in LZ77 coders.

    Adding a token and looking one run up take constant time.
    """

    __slots__ = ("_earlier", "_key", "_latest", "_num_seen", "tokens")

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self._num_seen = 0
        self._key = 0
        # Places are those right behind a run. Of the place p, the one before with the same run is earlier[p].
        self._latest: dict[int, int] = {}
        self._earlier: list[int] = [-1] * MIN_MATCH

    def catch_up(self, tokens: Tokens) -> None:
        """Add what `tokens` has more than the last time. It must begin as it did then."""
        new = tokens[self._num_seen :]
        self._num_seen = len(tokens)
        for token in new[-_MAX_INDEXED:].tolist():
            self.tokens.append(token)
            self._key = (self._key << _ID_BITS | token) & _KEY_MASK
            place = len(self.tokens)
            if place >= MIN_MATCH:
                self._earlier.append(self._latest.get(self._key, -1))
                self._latest[self._key] = place

    def end_key(self) -> int | None:
        """What stands for its last run; None if it is shorter than one."""
        return self._key if len(self.tokens) >= MIN_MATCH else None

    def places(self, key: int) -> Iterator[int]:
        """Right behind each occurrence of a run, the latest first, a few at most."""
        place = self._latest.get(key, -1)
        for _ in range(_CANDIDATES + 1):
            if place < 0:
                return
            yield place
            place = self._earlier[place]


def guess(history: TokenHistory, others: Iterable[TokenHistory] = ()) -> Guess | None:
    """What followed the longest earlier occurrence of the sequence's end: in itself, or else in `others`.

    Of several that agree equally long, the latest. At most MAX_DRAFT tokens.
    """
    key = history.end_key()
    if key is None:
        return None
    best = _search(history.tokens, key, history)
    for other in others:
        if best is None:
            best = _search(history.tokens, key, other)
    return best


def _search(tokens: list[int], key: int, source: TokenHistory) -> Guess | None:
    best, best_agreement = -1, 0
    for place in source.places(key):
        # An occurrence at the very end of the source is followed by nothing.
        if place >= len(source.tokens):
            continue
        agreement = _agreement(tokens, source.tokens, place)
        if agreement > best_agreement:
            best, best_agreement = place, agreement
    if best < 0:
        return None
    return Guess(np.array(source.tokens[best : best + MAX_DRAFT], np.int32), best_agreement)


def _agreement(tokens: list[int], source: list[int], place: int) -> int:
    """Tokens at the end of `tokens` and before `place` in `source` that are equal, up to a limit."""
    most = min(len(tokens), place, _MAX_MATCH)
    count = MIN_MATCH
    while count < most and tokens[-1 - count] == source[place - 1 - count]:
        count += 1
    return count
