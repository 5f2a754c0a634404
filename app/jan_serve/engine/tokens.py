"""Token ids of sequences are arrays, whose prefixes are compared; a PrefixMark tells apart equal ones."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

Tokens = npt.NDArray[np.int32]


class TokenBuffer:
    """Append-only int32 ids. Views stay valid: a full buffer is replaced by a larger copy."""

    __slots__ = ("_data", "_size")

    def __init__(self, tokens: Sequence[int] | Tokens = ()) -> None:
        self._data = np.array(tokens, dtype=np.int32)
        self._size = len(self._data)

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, index: int) -> int:
        return int(self._data[: self._size][index])

    def append(self, token: int) -> None:
        if self._size == len(self._data):
            grown = np.empty(max(64, 2 * self._size), np.int32)
            grown[: self._size] = self._data
            self._data = grown
        self._data[self._size] = token
        self._size += 1

    def view(self, start: int = 0, end: int | None = None) -> Tokens:
        """Ids from `start` up to `end` (default: the end), without a copy."""
        return self._data[start : self._size if end is None else min(end, self._size)]


def ends_of_turns(tokens: Tokens, end_ids: Sequence[int]) -> tuple[int, ...]:
    """Lengths of the prefixes that end with the first and with the last end-of-turn token, the final token excepted. In
    a chat: the system prompt or the first message, and the newest message."""
    ends = (np.flatnonzero(np.isin(tokens[:-1], end_ids)) + 1).tolist()
    return tuple(sorted({ends[0], ends[-1]})) if ends else ()


def only_tokens(ids: Tokens) -> Tokens:
    """Without placeholders of images, which are below zero. A view if there are none."""
    return ids if not len(ids) or int(ids.min()) >= 0 else ids[ids >= 0]


def common_prefix(a: Tokens, b: Tokens) -> int:
    """Number of leading ids that are equal."""
    n = min(len(a), len(b))
    if n == 0:
        return 0
    differs = a[:n] != b[:n]
    first = int(differs.argmax())
    return first if differs[first] else n


def shared_prefix(rows: Sequence[Sequence[int]]) -> int:
    """Number of leading ids that all rows have, and that leave each row at least one more."""
    first = np.asarray(rows[0], np.int32)
    return min(common_prefix(first, np.asarray(row, np.int32)[:-1]) for row in rows)


_WORD = 1 << 32


class PrefixMark(msgspec.Struct, frozen=True):
    """A permutation of the 32-bit numbers, token * factor + offset, per set of adapters and per salt. Prefixes equal
    under one mark differ under another or without one, except for a chance of 2**-32 per token. So caches need not know
    about adapters or salts: they get marked tokens."""

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
