"""Keeps prefixes of different LoRA adapters or cache salts apart, wherever prefixes are compared by tokens."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np

from jan_serve.engine.tokens import Tokens

_WORD = 1 << 32


@dataclass(frozen=True, slots=True)
class PrefixMark:
    """A permutation of the 32-bit numbers, token * factor + offset, of its own for each use of adapters and each salt.

    Equal prefixes stay equal under one mark, and have nothing in common under two, or with unmarked ones, but for a
    chance of 2**-32 a token. So caches need not know of either: they are given marked tokens.
    """

    factor: int
    offset: int

    @classmethod
    def of(cls, *parts: str) -> PrefixMark:
        """The mark of what these texts identify: the same in every process."""
        digest = hashlib.blake2b("\0".join(parts).encode(), digest_size=8).digest()
        factor, offset = (int.from_bytes(digest[i : i + 4], "little") for i in (0, 4))
        return cls(factor | 1, offset)

    def apply(self, tokens: Tokens) -> Tokens:
        """The tokens as caches are to see them. A copy, of the same shape and type."""
        marked = (tokens.astype(np.int64) * self.factor + self.offset) % _WORD
        return marked.astype(np.uint32).view(np.int32)
