"""What is in the KV cache: cells that sequences own and share, and finished ones. Pure bookkeeping."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from jan_serve.engine.tokens import Tokens, common_prefix


class _Run:
    """Consecutive cells held by the same sequences. `holders`: number of sequences whose path includes it."""

    __slots__ = ("holders", "length", "parent")

    def __init__(self, parent: _Run | None, length: int, holders: int) -> None:
        self.parent = parent
        self.length = length
        self.holders = holders


class CellCounter:
    """Cells in use, by sequence id. Lengths are in tokens, which are cells."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.used = 0
        self._leaf: dict[int, _Run] = {}

    @property
    def free(self) -> int:
        return self.capacity - self.used

    def length(self, seq_id: int) -> int:
        """Cells of a sequence, shared ones included."""
        total, run = 0, self._leaf.get(seq_id)
        while run is not None:
            total += run.length
            run = run.parent
        return total

    def exclusive(self, seq_id: int) -> int:
        """Cells that dropping this sequence would free."""
        total, run = 0, self._leaf.get(seq_id)
        while run is not None and run.holders == 1:
            total += run.length
            run = run.parent
        return total

    def held_by(self, seq_ids: Iterable[int]) -> int:
        """Cells that at least one of these sequences holds."""
        total = 0
        seen: set[int] = set()
        for seq_id in seq_ids:
            run = self._leaf.get(seq_id)
            while run is not None and id(run) not in seen:
                seen.add(id(run))
                total += run.length
                run = run.parent
        return total

    def extend(self, seq_id: int, count: int) -> None:
        if count == 0:
            return
        leaf = self._leaf.get(seq_id)
        if leaf is not None and leaf.holders == 1:
            leaf.length += count
        else:
            self._leaf[seq_id] = _Run(leaf, count, 1)
        self.used += count

    def share(self, source: int, target: int, length: int) -> None:
        """Share the first `length` cells of `source` with `target`, which must be empty."""
        if target in self._leaf:
            raise ValueError(f"sequence {target} holds cells already")
        run = self._leaf.get(source)
        position = self.length(source)
        if length > position:
            raise ValueError(f"sequence {source} holds {position} cells, not {length}")
        while run is not None and position - run.length >= length:
            position -= run.length
            run = run.parent
        if run is None or length == 0:
            return
        keep = length - (position - run.length)
        if keep < run.length:
            # Split off the shared part as a new parent; every path through `run` keeps its cells.
            run.parent = _Run(run.parent, keep, run.holders)
            run.length -= keep
            run = run.parent
        self._leaf[target] = run
        node: _Run | None = run
        while node is not None:
            node.holders += 1
            node = node.parent

    def shrink(self, seq_id: int, count: int) -> None:
        """Free the last `count` cells of a sequence, which must not be shared."""
        if count == 0:
            return
        leaf = self._leaf[seq_id]
        if leaf.holders != 1 or leaf.length < count:
            raise ValueError(f"sequence {seq_id} shares its last {count} cells")
        leaf.length -= count
        self.used -= count

    def remove(self, seq_id: int) -> None:
        run = self._leaf.pop(seq_id, None)
        while run is not None:
            run.holders -= 1
            if run.holders == 0:
                self.used -= run.length
            run = run.parent

    def clear(self) -> None:
        self._leaf.clear()
        self.used = 0


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
