"""Counts the KV cells that sequences own and share, so that the scheduler knows the free cells before a decode fails.

llama_memory_seq_cp makes two sequences share the cells of a prefix; a cell is free again when its last sequence drops
it. Only prefixes are shared, so the cells form a forest: a node is a run of cells, a sequence is a path.
Pure bookkeeping: mirrors the engine's changes to the llama.cpp memory without touching it.
"""

from __future__ import annotations

from collections.abc import Iterable


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
