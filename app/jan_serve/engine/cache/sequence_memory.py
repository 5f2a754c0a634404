"""What a llama.cpp context remembers: cells and ids of its sequences, finished ones that are kept, and the tiers below.

Used by the engine's thread alone.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from jan_serve.core.sequence_state import SequenceState
from jan_serve.engine.cache.cells import CellCounter
from jan_serve.engine.cache.prefix_cache import PrefixCache, PrefixMatch
from jan_serve.engine.cache.state_cache import MIN_TOKENS, StateCache
from jan_serve.engine.cache.state_restorer import StateRestorer
from jan_serve.engine.llama.context import LlamaContext
from jan_serve.engine.sequence import Sequence

IDLE_CELLS = 64
"""What finished sequences may hold beside running ones. On CPUs a running sequence looks at every cell, its own or not,
and the threads share the attention of one stream by place in the cache; RAM has it back in milliseconds (ADR 0025)."""
COPIED_SLOWLY_IDLE_CELLS = 1024
"""The same where a copy is dearer: off a device, or of values that lie transposed (without flash attention)."""


class SequenceMemory:
    """Gives out sequence ids and cells, and takes them back. It evicts finished sequences only, never running ones."""

    def __init__(
        self,
        context: LlamaContext,
        *,
        n_ctx: int,
        n_sequences: int,
        states: StateCache | None = None,
        idle_cells: int = IDLE_CELLS,
    ) -> None:
        """n_sequences: running and finished ones together. states: the tiers below; None for none.

        idle_cells: what finished sequences may hold alone beside running ones, while there are such tiers.
        """
        self.cells = CellCounter(min(n_ctx, context.n_ctx))
        self.cache = PrefixCache(whole_only=context.model.is_recurrent)
        self.states = StateRestorer(states or StateCache(0), context, self.cells, self.cache)
        self._context = context
        self._free_ids = list(range(n_sequences - 1, -1, -1))
        self._idle_cells = idle_cells
        self.made_way_total = 0  # finished sequences that went to RAM for running ones

    @property
    def whole_only(self) -> bool:
        """Whether sequences can be shared, kept and given back only as a whole (recurrent layers)."""
        return self.cache.whole_only

    def occupy(self, sequence: Sequence, prefix: PrefixMatch | None, running: Iterable[Sequence]) -> int:
        """Give a waiting sequence an id, and the longest prefix that there is; the number of tokens that it has."""
        others = [other.seq_id for other in running]
        if prefix is not None:
            self.cache.touch(prefix.seq_id)
        sequence.seq_id = self._take_id(keep=prefix.seq_id if prefix is not None else None)
        have = prefix.length if prefix is not None else 0
        restored = self.states.restore(sequence, have, lambda count: self.make_room(count, others))
        is_there = (
            prefix is not None
            and (prefix.seq_id in self.cache or prefix.seq_id in others)
            and self._context.reaches_back(prefix.seq_id, prefix.length)
        )
        if restored:
            shared = self._share_restored(sequence.seq_id, prefix) if prefix is not None and is_there else 0
            self.cells.extend(sequence.seq_id, restored - shared)
            return restored
        if prefix is None or not is_there:
            return 0
        if self.whole_only:
            self._context.copy_all(prefix.seq_id, sequence.seq_id)
        else:
            self._context.copy_prefix(prefix.seq_id, sequence.seq_id, prefix.length)
        self.cells.share(prefix.seq_id, sequence.seq_id, prefix.length)
        return prefix.length

    def replace(self, sequence: Sequence, state: SequenceState) -> bool:
        """Put what another server computed in place of what the sequence has. Without room it has nothing: False."""
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
        """Evict finished sequences until so many cells are free; none where that would not do. running: their ids."""
        if count > self.cells.capacity - self.cells.held_by(running):
            return False
        while self.cells.free < count:
            if not self.evict_oldest():
                return False
        return True

    def evict_oldest(self) -> bool:
        """Give up the finished sequence that was used longest ago; the tiers below may keep it. False without one."""
        oldest = self.cache.least_recent()
        if oldest is None:
            return False
        self._evict(oldest)
        return True

    def thin_out(self, running: Iterable[int]) -> None:
        """Have finished sequences make way for running ones, the oldest first, to RAM. running: their ids.

        Blocks for the copies. Does nothing where nothing runs. One that the RAM has no room for stays.
        """
        ids = list(running)
        if not ids or self.states.is_off:
            return
        most = self.cells.held_by(ids) + self._idle_cells
        for seq_id in self.cache.seq_ids:
            if self.cells.used <= most:
                return
            if self.states.fits_ram(seq_id) and self._save(seq_id):
                self._drop(seq_id)
                self.made_way_total += 1
            else:
                # It is no reason for others to go.
                most += self.cells.exclusive(seq_id)

    def keep(self, sequence: Sequence) -> None:
        """A running sequence ended: what it computed stays as long as there is room."""
        self.drop_draft(sequence)
        if sequence.num_computed == 0:
            self.release(sequence.seq_id)
            return
        tokens = sequence.prefix(sequence.num_computed)
        for covered in self.cache.add(sequence.seq_id, tokens, sequence.state.prompt_length):
            self.release(covered)

    def drop_draft(self, sequence: Sequence) -> None:
        """Give back the cells of a draft that came to nothing."""
        if sequence.num_drafted:
            self._context.truncate(sequence.seq_id, sequence.num_computed)
            self.cells.shrink(sequence.seq_id, sequence.num_drafted)
            sequence.num_drafted = 0

    def release(self, seq_id: int) -> None:
        """Drop what a sequence holds; its id is free."""
        self._context.remove(seq_id)
        self.cells.remove(seq_id)
        self._free_ids.append(seq_id)

    def reset(self) -> None:
        """Forget everything, unsaved: the memory is in an unknown state. No sequence may be running."""
        for seq_id in self.cache.seq_ids:
            self.cache.remove(seq_id)
            self.release(seq_id)
        self._context.clear()
        self.cells.clear()

    def save(self, patience_s: float) -> None:
        """Keep what is cached for the next worker of this model. Blocks for the disk, and so long at most."""
        self.states.lift_budget()
        while self.evict_oldest():
            pass
        self.states.flush(patience_s)

    def _share_restored(self, seq_id: int, prefix: PrefixMatch) -> int:
        """Of a state that was brought back, have the KV cache hold once what it already holds; how many tokens."""
        if self.whole_only or prefix.length < MIN_TOKENS:
            return 0
        if not self._context.replace_prefix(prefix.seq_id, seq_id, prefix.length):
            return 0
        self.cells.share(prefix.seq_id, seq_id, prefix.length)
        return prefix.length

    def _take_id(self, keep: int | None) -> int:
        """An id that holds nothing; evicts if all are in use, `keep` last."""
        if not self._free_ids:
            others = [seq_id for seq_id in self.cache.seq_ids if seq_id != keep]
            # Without others the prefix is what there is to give up: it is in the tiers below, or computed again.
            self._evict(others[0] if others else self.cache.seq_ids[0])
        return self._free_ids.pop()

    def _evict(self, seq_id: int) -> None:
        self._save(seq_id)
        self._drop(seq_id)

    def _save(self, seq_id: int) -> bool:
        """Have the tiers below keep a finished sequence; it must go then. False where they should and could not.

        Of blocks with a sliding window a state holds the window before its end only. So there is one of the prompt too:
        the next turn may show the answer in another way, without its thoughts for example.
        """
        saved = self.states.save_evicted(seq_id)
        if saved and self._context.has_window and self.cache.cut_answer(seq_id):
            self._context.truncate(seq_id, len(self.cache.tokens(seq_id)))
            self.states.save_evicted(seq_id)
        return saved

    def _drop(self, seq_id: int) -> None:
        self.cache.remove(seq_id)
        self.release(seq_id)
