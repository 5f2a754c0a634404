"""Token sequences by their beginnings, so that the longest common prefix is found without looking at all of them.

Prefixes are chained by blocks, as vLLM's automatic prefix caching does it: the hash of a block covers all tokens before
it. A look-up takes a step for each block of the prompt, however many sequences there are.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from itertools import islice
from typing import Generic, Protocol, TypeVar

from jan_serve.engine.tokens import Tokens, common_prefix

BLOCK = 16
"""Tokens of a block: shorter common prefixes are not found."""

_LOOKED_AT = 8
"""So many of the sequences that share all whole blocks are compared: others are less than a block better."""


class Tokenised(Protocol):
    """Something with tokens, which do not change. Told apart by identity."""

    @property
    def tokens(self) -> Tokens: ...


T = TypeVar("T", bound=Tokenised)


class PrefixIndex(Generic[T]):
    """Items in the order in which they came. Thread-safe; nothing blocks."""

    def __init__(self) -> None:
        self._items: dict[T, list[int]] = {}  # with the chained hashes of their whole blocks
        self._through: dict[int, dict[T, None]] = {}  # those that hold all blocks up to this one
        self._ending: dict[int, dict[T, None]] = {}  # those of which this is the last whole block
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[T]:
        """The items of now, the first that came first."""
        with self._lock:
            return iter(list(self._items))

    @property
    def first(self) -> T:
        """The item that came first. Raises StopIteration without one."""
        return next(iter(self._items))

    def __contains__(self, item: T) -> bool:
        return item in self._items

    def add(self, item: T) -> None:
        """Take an item in; one that is there already is now the last that came."""
        self.remove(item)
        hashes = _hashes(item.tokens)
        with self._lock:
            self._items[item] = hashes
            for each in hashes[1:]:
                self._through.setdefault(each, {})[item] = None
            self._ending.setdefault(hashes[-1], {})[item] = None

    def remove(self, item: T) -> bool:
        """Forget an item. False if it is not there."""
        with self._lock:
            hashes = self._items.pop(item, None)
            if hashes is None:
                return False
            for each in hashes[1:]:
                _discard(self._through, each, item)
            _discard(self._ending, hashes[-1], item)
            return True

    def clear(self) -> None:
        """Forget all items."""
        with self._lock:
            self._items.clear()
            self._through.clear()
            self._ending.clear()

    def longest(self, tokens: Tokens) -> tuple[T, int] | None:
        """The item that shares most of the beginning of `tokens`, and how much, up to less than a block."""
        hashes = _hashes(tokens)
        with self._lock:
            for each in reversed(hashes[1:]):
                near = self._through.get(each)
                if near:
                    looked_at = islice(reversed(near), _LOOKED_AT)
                    length, item = max(
                        ((common_prefix(tokens, item.tokens), item) for item in looked_at),
                        key=lambda found: found[0],
                    )
                    return item, length
        return None

    def beginnings(self, tokens: Tokens) -> list[T]:
        """The items all of whose tokens are the beginning of `tokens`, the longest first."""
        hashes = _hashes(tokens)
        found: list[T] = []
        with self._lock:
            for each in reversed(hashes):
                ending = self._ending.get(each, ())
                whole = [item for item in ending if common_prefix(item.tokens, tokens) == len(item.tokens)]
                found += sorted(whole, key=lambda item: len(item.tokens), reverse=True)
        return found

    def has_beginning(self, tokens: Tokens) -> bool:
        """Whether the beginning of some item is `tokens`."""
        hashes = _hashes(tokens)
        with self._lock:
            near = self._through.get(hashes[-1], ()) if len(hashes) > 1 else self._items
            return any(common_prefix(item.tokens, tokens) == len(tokens) for item in near)


def _hashes(tokens: Tokens) -> list[int]:
    """Of no block, and of each whole block with all before it."""
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
