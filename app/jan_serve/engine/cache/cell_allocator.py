"""The KV cache of a context: cells and ids of sequences, and the tiers below. For the engine thread."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from jan_serve.core.kv_transfer import SequenceState
from jan_serve.engine.cache.prefix_cache import CellCounter, PrefixCache, PrefixMatch
from jan_serve.engine.cache.state_cache import MIN_TOKENS, StateCache
from jan_serve.engine.cache.state_files import file_bytes
from jan_serve.engine.cache.state_restorer import StateRestorer
from jan_serve.engine.llama.context import LlamaContext
from jan_serve.engine.sequence import Sequence

IDLE_CELLS = 4096
"""Max cells of finished sequences beside running ones. Each row of a batch looks at the mask of every cell, its own or
not (ADR 0025)."""
READ_IDLE_CELLS = 1024
"""The same where attention reads the cells too: on a device, or without flash attention."""


class CellAllocator:
    """Allocates and frees sequence ids and cells. Evicts finished sequences only, never running ones."""

    def __init__(
        self,
        context: LlamaContext,
        *,
        n_ctx: int,
        n_sequences: int,
        states: StateCache | None = None,
        idle_cells: int = IDLE_CELLS,
        on_fetched: Callable[[], None] = lambda: None,
    ) -> None:
        """n_sequences: running and finished. states: the tiers below, if any.

        idle_cells: max exclusive cells of finished sequences beside running ones, if there are tiers.
        on_fetched: see StateRestorer.
        """
        self.cells = CellCounter(min(n_ctx, context.n_ctx))
        self.cache = PrefixCache(whole_only=context.model.is_recurrent)
        self.states = StateRestorer(states or StateCache(0), context, self.cells, self.cache, on_fetched)
        self._context = context
        self._free_ids = list(range(n_sequences - 1, -1, -1))
        self._idle_cells = idle_cells
        self.made_way_total = 0  # finished sequences moved to RAM for running ones

    @property
    def whole_only(self) -> bool:
        """Whether sequences can only be shared, cached and restored as a whole (recurrent layers)."""
        return self.cache.whole_only

    def occupy(self, sequence: Sequence, prefix: PrefixMatch | None, running: Iterable[Sequence]) -> int:
        """Give a waiting sequence an id and its longest cached prefix. Returns the number of tokens of that."""
        others = [other.seq_id for other in running]
        sequence.seq_id = self._take_id(keep=prefix.seq_id if prefix is not None else None)
        num_cached = 0
        if prefix is not None and (prefix.seq_id in self.cache or prefix.seq_id in others):
            self.cache.touch(prefix.seq_id)
            num_cached = prefix.length
        else:
            prefix = None
        tier = self.states.tier_of(sequence)
        restored = self.states.restore(sequence, num_cached, lambda count: self.make_room(count, others))
        # Making room may have evicted the prefix.
        is_there = prefix is not None and (prefix.seq_id in self.cache or prefix.seq_id in others)
        sequence.cached_in = tier if restored else "cells" if is_there else None
        if restored:
            shared = self._share_restored(sequence, prefix) if prefix is not None and is_there else 0
            self.cells.extend(sequence.seq_id, restored - shared)
            return restored
        if prefix is None or not is_there:
            return 0
        if self.whole_only:
            self._context.copy_all(prefix.seq_id, sequence.seq_id)
        else:
            self._context.copy_prefix(prefix.seq_id, sequence.seq_id, sequence.position(prefix.length))
        self.cells.share(prefix.seq_id, sequence.seq_id, prefix.length)
        return prefix.length

    def replace(self, sequence: Sequence, state: SequenceState) -> bool:
        """Replace the sequence's cells by another server's state. False, and the sequence is empty, without room."""
        length = len(state.tokens)
        self._context.remove(sequence.seq_id)
        self.cells.remove(sequence.seq_id)
        while self.cells.free < length and self.evict_oldest():
            pass
        memory = np.frombuffer(state.memory, np.uint8)
        if not self._context.restore_sequence(sequence.seq_id, memory, length):
            return False
        self.cells.extend(sequence.seq_id, length)
        return True

    def make_room(self, count: int, running: Iterable[int]) -> bool:
        """Evict finished sequences until `count` cells are free; none if that cannot suffice. running: their ids."""
        if count > self.cells.capacity - self.cells.held_by(running):
            return False
        while self.cells.free < count:
            if not self.evict_oldest():
                return False
        return True

    def evict_oldest(self) -> bool:
        """Evict the least recently used finished sequence, perhaps to the tiers below. False if there is none."""
        oldest = self.cache.least_recent()
        if oldest is None:
            return False
        self._evict(oldest)
        return True

    def limit_idle_cells(self, running: Iterable[int]) -> None:
        """Move the oldest finished sequence to RAM, to speed up the running ones, and trim it. running: their ids.
        Blocks for one copy: a request may wait for it. Does nothing if no sequence runs. A sequence too large for the
        RAM stays."""
        self.states.tiers.trim()
        ids = list(running)
        if not ids or self.states.tiers.is_off:
            return
        max_cells = self.cells.held_by(ids) + self._idle_cells
        for seq_id in self.cache.seq_ids:
            if self.cells.used <= max_cells:
                return
            if self.states.fits_ram(seq_id) and self._save(seq_id):
                self._drop(seq_id)
                self.made_way_total += 1
                return
            # It stays; the others need not make up for it.
            max_cells += self.cells.exclusive(seq_id)

    def keep(self, sequence: Sequence) -> None:
        """Cache what a finished sequence computed, as long as there is room."""
        self.drop_draft(sequence)
        if sequence.num_computed == 0:
            self.release(sequence.seq_id)
            return
        tokens = sequence.prefix(sequence.num_computed)
        surplus = sequence.media.surplus
        for covered in self.cache.add(sequence.seq_id, tokens, sequence.state.prompt_length, surplus):
            self.release(covered)

    def rewind(self, sequence: Sequence) -> None:
        """Drop cells of a batch that was not committed. An image that is computed in part begins again."""
        start = sequence.media.cut(sequence.num_computed)
        self._context.truncate(sequence.seq_id, sequence.position(start))
        self.cells.shrink(sequence.seq_id, sequence.num_computed - start)
        sequence.num_computed = start

    def drop_draft(self, sequence: Sequence) -> None:
        if sequence.num_drafted:
            self._context.truncate(sequence.seq_id, sequence.position(sequence.num_computed))
            self.cells.shrink(sequence.seq_id, sequence.num_drafted)
            sequence.num_drafted = 0

    def release(self, seq_id: int) -> None:
        """Free the cells and the id of a sequence."""
        self._context.remove(seq_id)
        self.cells.remove(seq_id)
        self._free_ids.append(seq_id)

    def reset(self) -> None:
        """Drop everything unsaved, after the memory became undefined. No sequence may be running."""
        for seq_id in self.cache.seq_ids:
            self.cache.remove(seq_id)
            self.release(seq_id)
        self._context.clear()
        self.cells.clear()

    def save(self, timeout_s: float) -> None:
        """Save the cache for the next worker of this model, as far as the disk budget reaches. Blocks for the copies,
        then for the disk up to `timeout_s`. Does nothing without files."""
        if not self.states.tiers.disk_bytes:
            return
        self._drop_beyond(self.states.tiers.disk_bytes)
        self._save_all()
        self.states.tiers.flush(timeout_s)

    def grow(self, context: LlamaContext, n_ctx: int) -> None:
        """Move to a longer context, where waiting sequences find all states in RAM. No sequence may be running. Blocks
        for the copies."""
        self._save_all()
        self._context.become(context)
        self.cells.capacity = n_ctx

    def _save_all(self) -> None:
        """Evict all finished sequences, and keep their states in RAM, whatever its limit."""
        with self.states.tiers.without_limit():
            while self.evict_oldest():
                pass

    def _drop_beyond(self, budget_bytes: int) -> None:
        """Drop the finished sequences whose states exceed a budget, most recently used first."""
        for seq_id in reversed(self.cache.seq_ids):
            size = file_bytes(len(self.cache.tokens(seq_id)), self._context.state_bytes(seq_id))
            if size <= budget_bytes:
                budget_bytes -= size
            else:
                self._drop(seq_id)

    def _share_restored(self, sequence: Sequence, prefix: PrefixMatch) -> int:
        """Share the cells of `prefix` with a restored sequence instead of a second copy. Returns the shared tokens."""
        if self.whole_only or prefix.length < MIN_TOKENS:
            return 0
        position = sequence.position(prefix.length)
        if not self._context.replace_prefix(prefix.seq_id, sequence.seq_id, position):
            return 0
        self.cells.share(prefix.seq_id, sequence.seq_id, prefix.length)
        return prefix.length

    def _take_id(self, keep: int | None) -> int:
        """A free id; evicts if all are in use, `keep` last."""
        if not self._free_ids:
            others = [seq_id for seq_id in self.cache.seq_ids if seq_id != keep]
            # Only the prefix is left to evict: it is in the tiers below, or is computed again.
            self._evict(others[0] if others else self.cache.seq_ids[0])
        return self._free_ids.pop()

    def _evict(self, seq_id: int) -> None:
        self._save(seq_id)
        self._drop(seq_id)

    def _save(self, seq_id: int) -> bool:
        """Save a finished sequence to the tiers below; the caller must then drop it. False if saving failed. For blocks
        with a sliding window, a state holds only the last window. So the prompt is saved too: the next turn may render
        the answer differently, for example without its reasoning."""
        saved = self.states.save_evicted(seq_id)
        if saved and self._context.has_window and self.cache.cut_answer(seq_id):
            self._context.truncate(seq_id, self.cache.position(seq_id))
            self.states.save_evicted(seq_id)
        return saved

    def _drop(self, seq_id: int) -> None:
        self.cache.remove(seq_id)
        self.release(seq_id)
