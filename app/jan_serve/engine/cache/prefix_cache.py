"""The prefix cache knows the finished sequences in the KV cache, and finds the longest prefix that a prompt shares.

Pure: the engine moves the cells. Entries stay until their cells or ids are needed; the caller adds running
sequences. PrefixIndex serves the tiers below it: it finds the longest common prefix without comparing with all
sequences. Its blocks are hash-chained as in vLLM's automatic prefix caching: the hash of a block covers all tokens
before it. A look-up takes one step per block of the prompt, however many sequences there are.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Generic, TypeVar

import msgspec

from jan_serve.engine.tokens import Tokens, common_prefix


class CachedSequence(msgspec.Struct, eq=False):
    """A finished sequence. used: logical time of the last use. prompt_length: tokens before its answer.

    surplus: cells minus positions of its images.
    """

    seq_id: int
    tokens: Tokens
    used: int
    prompt_length: int
    surplus: int = 0


class PrefixMatch(msgspec.Struct, frozen=True):
    """The first `length` tokens of a prompt are in the cells of sequence `seq_id`."""

    seq_id: int
    length: int


class PrefixCache:
    """Finished sequences by recency. whole_only: the memory cannot share part of a sequence (recurrent layers)."""

    def __init__(self, *, whole_only: bool = False) -> None:
        self.whole_only = whole_only
        self._entries: dict[int, CachedSequence] = {}
        self._time = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, seq_id: int) -> bool:
        return seq_id in self._entries

    @property
    def seq_ids(self) -> list[int]:
        """Ids of the entries, least recently used first."""
        return [entry.seq_id for entry in sorted(self._entries.values(), key=lambda entry: entry.used)]

    def match(
        self,
        prompt: Tokens,
        running: Iterable[tuple[int, Tokens]] = (),
        cut: Callable[[int], int] = lambda length: length,
        is_usable: Callable[[int, int], bool] = lambda _seq_id, _length: True,
    ) -> PrefixMatch | None:
        """The longest usable prefix of `prompt` among the entries and the `running` sequences' computed tokens.

        At least one token of the prompt is left to compute, for its logits. cut: shortens a length to a usable one.
        is_usable: whether the memory can share so many tokens of a sequence.
        """
        best: PrefixMatch | None = None
        limit = len(prompt) - 1
        candidates = [(entry.seq_id, entry.tokens) for entry in self._entries.values()]
        for seq_id, tokens in [*candidates, *running]:
            length = cut(common_prefix(prompt[:limit], tokens))
            if self.whole_only and length != len(tokens):
                continue
            is_better = length > (0 if best is None else best.length)
            if is_better and is_usable(seq_id, length):
                best = PrefixMatch(seq_id, length)
        return best

    def touch(self, seq_id: int) -> None:
        entry = self._entries.get(seq_id)
        if entry is not None:
            self._time += 1
            entry.used = self._time

    def add(self, seq_id: int, tokens: Tokens, prompt_length: int = 0, surplus: int = 0) -> list[int]:
        """Add a finished sequence. Removes and returns the entries that are prefixes of it."""
        covered = [
            entry.seq_id
            for entry in self._entries.values()
            if not self.whole_only and common_prefix(entry.tokens, tokens) == len(entry.tokens)
        ]
        for other in covered:
            del self._entries[other]
        self._time += 1
        self._entries[seq_id] = CachedSequence(seq_id, tokens, self._time, prompt_length, surplus)
        return covered

    def tokens(self, seq_id: int) -> Tokens:
        return self._entries[seq_id].tokens

    def position(self, seq_id: int) -> int:
        """llama.cpp's position after an entry with its whole prompt."""
        entry = self._entries[seq_id]
        return len(entry.tokens) - entry.surplus

    def cut_answer(self, seq_id: int) -> bool:
        """Cut an entry to its prompt. False if it has no answer."""
        entry = self._entries[seq_id]
        if not 0 < entry.prompt_length < len(entry.tokens):
            return False
        entry.tokens = entry.tokens[: entry.prompt_length]
        return True

    def remove(self, seq_id: int) -> None:
        self._entries.pop(seq_id, None)

    def least_recent(self) -> int | None:
        """The id to evict next; None if the cache is empty."""
        entry = min(self._entries.values(), key=lambda entry: entry.used, default=None)
        return None if entry is None else entry.seq_id

    def clear(self) -> None:
        self._entries.clear()


BLOCK = 16
"""Tokens per block; shorter common prefixes are not found."""

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
