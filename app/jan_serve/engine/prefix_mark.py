"""Separates prefixes under different LoRA adapters or cache salts wherever prefixes are compared by tokens."""

from __future__ import annotations

import hashlib

import msgspec
import numpy as np

from jan_serve.engine.tokens import Tokens

_WORD = 1 << 32


class PrefixMark(msgspec.Struct, frozen=True):
    """A permutation of the 32-bit numbers, token * factor + offset, per set of adapters and per salt.

    Prefixes equal under one mark differ under another or without one, except for a chance of 2**-32 per token. So
    caches need not know about adapters or salts: they get marked tokens.
    """

    factor: int
    offset: int

    @classmethod
    def of(cls, *parts: str) -> PrefixMark:
        """The mark for these texts; the same in every process."""
        digest = hashlib.blake2b("\0".join(parts).encode(), digest_size=8).digest()
        factor, offset = (int.from_bytes(digest[i : i + 4], "little") for i in (0, 4))
        return cls(factor | 1, offset)

    def apply(self, tokens: Tokens) -> Tokens:
        """The marked tokens: a copy of the same shape and type."""
        marked = (tokens.astype(np.int64) * self.factor + self.offset) % _WORD
        return marked.astype(np.uint32).view(np.int32)
