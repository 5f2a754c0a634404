"""Saved token sequences by their beginnings: the one that shares most with a prompt is found without comparing all."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from itertools import islice
from typing import Generic, TypeVar

import msgspec

from jan_serve.engine.tokens import Tokens, common_prefix

BLOCK = 16  # tokens per block; shorter common prefixes are not found

_MAX_COMPARED = 8
"""Sequences that share all whole blocks and are compared by token: others are better by less than a block."""


class Tokenised(msgspec.Struct, frozen=True, eq=False):
    """Base of items: immutable tokens, compared by identity."""

    tokens: Tokens


T = TypeVar("T", bound=Tokenised)


class PrefixIndex(Generic[T]):
    """Items in insertion order. Thread-safe; never blocks."""

    def __init__(self) -> None:
        self._items: dict[T, list[int]] = {}  # with the chained hashes of their whole blocks
        self._through: dict[int, dict[T, None]] = {}  # items with all blocks up to this one
        self._ending: dict[int, dict[T, None]] = {}  # items whose last whole block is this one
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[T]:
        """A snapshot of the items, oldest first."""
        with self._lock:
            return iter(list(self._items))

    @property
    def first(self) -> T:
        """The oldest item. Raises StopIteration if there is none."""
        return next(iter(self._items))

    def __contains__(self, item: T) -> bool:
        return item in self._items

    def add(self, item: T) -> None:
        """Add an item, or make a known one the newest."""
        self.remove(item)
        hashes = _hashes(item.tokens)
        with self._lock:
            self._items[item] = hashes
            for each in hashes[1:]:
                self._through.setdefault(each, {})[item] = None
            self._ending.setdefault(hashes[-1], {})[item] = None

    def remove(self, item: T) -> bool:
        """False if there is no such item."""
        with self._lock:
            hashes = self._items.pop(item, None)
            if hashes is None:
                return False
            for each in hashes[1:]:
                _discard(self._through, each, item)
            _discard(self._ending, hashes[-1], item)
            return True

    def clear(self) -> None:
        with self._lock:
            self._items.clear()
            self._through.clear()
            self._ending.clear()

    def longest(self, tokens: Tokens) -> tuple[T, int] | None:
        """The item with the longest common prefix, within a block of the best, and the length of that prefix."""
        hashes = _hashes(tokens)
        with self._lock:
            for each in reversed(hashes[1:]):
                items = self._through.get(each)
                if items:
                    newest = islice(reversed(items), _MAX_COMPARED)
                    length, item = max(
                        ((common_prefix(tokens, item.tokens), item) for item in newest),
                        key=lambda found: found[0],
                    )
                    return item, length
        return None

    def beginnings(self, tokens: Tokens) -> list[T]:
        """The items that are whole prefixes of `tokens`, longest first."""
        hashes = _hashes(tokens)
        found: list[T] = []
        with self._lock:
            for each in reversed(hashes):
                ending = self._ending.get(each, ())
                whole = [item for item in ending if common_prefix(item.tokens, tokens) == len(item.tokens)]
                found += sorted(whole, key=lambda item: len(item.tokens), reverse=True)
        return found

    def has_beginning(self, tokens: Tokens) -> bool:
        """Whether `tokens` is a prefix of some item."""
        hashes = _hashes(tokens)
        with self._lock:
            items = self._through.get(hashes[-1], ()) if len(hashes) > 1 else self._items
            return any(common_prefix(item.tokens, tokens) == len(tokens) for item in items)


def _hashes(tokens: Tokens) -> list[int]:
    """Hashes of the empty prefix and of each whole block with all blocks before it."""
    hashes = [0]
    for start in range(0, len(tokens) - BLOCK + 1, BLOCK):
        hashes.append(hash((hashes[-1], tokens[start : start + BLOCK].tobytes())))
    return hashes


def _discard(groups: dict[int, dict[T, None]], key: int, item: T) -> None:
    group = groups.get(key)
    if group is not None:
        group.pop(item, None)
        if not group:
            del groups[key]
