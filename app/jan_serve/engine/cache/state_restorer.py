"""Moves sequences between the KV cache and the tiers below it: out when they are evicted, back in when a prompt begins
like them. Used by the engine's thread alone."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future

from jan_serve.engine.cache.cells import CellCounter
from jan_serve.engine.cache.prefix_cache import PrefixCache
from jan_serve.engine.cache.state_cache import MIN_TOKENS, SavedState, StateCache
from jan_serve.engine.llama.context import LlamaContext
from jan_serve.engine.sequence import Sequence
from jan_serve.engine.tokens import Tokens, common_prefix
from jan_serve.errors import EngineFailure

_STATES_IN_RAM = 4
"""So many at least should have room there."""

_GAIN = 16
"""A state is brought back for one in so many of its tokens: all are read, copied, and need cells for a moment."""

logger = logging.getLogger(__name__)


def _pays(gain: int, length: int) -> bool:
    return gain >= max(MIN_TOKENS, length // _GAIN)


class StateRestorer:
    """Saving and restoring for one context, whose cells and cached sequences it reads and never changes."""

    def __init__(
        self, states: StateCache, context: LlamaContext, cells: CellCounter, cache: PrefixCache
    ) -> None:
        self._states = states
        self._context = context
        self._cells = cells
        self._cache = cache
        # Of waiting sequences: what is brought for them, and how many of their tokens it holds.
        self._fetches: dict[int, tuple[Future[SavedState | None], int]] = {}
        # Of waiting sequences: the version of the cache in which nothing was found for them, and for how many tokens.
        self._missed: dict[int, tuple[int, int]] = {}
        self.saved = self.restored = 0

    @property
    def is_off(self) -> bool:
        """Whether nothing is kept below the KV cache."""
        return self._states.is_off

    @property
    def ram_used(self) -> int:
        """Bytes of states in RAM."""
        return self._states.ram_used

    def fits_ram(self, seq_id: int) -> bool:
        """Whether the state of a sequence is small enough to stay in RAM beside others."""
        return self._context.state_bytes(seq_id) <= self._states.ram_bytes // _STATES_IN_RAM

    def save_evicted(self, seq_id: int) -> bool:
        """Keep what an entry of the prefix cache holds, before its cells go. Blocks for the copy.

        Not where the rest of the KV cache goes on holding nearly all of it. False where it should and could not.
        """
        tokens = self._cache.tokens(seq_id)
        alone = len(tokens) if self._cache.whole_only else self._cells.exclusive(seq_id)
        return alone < MIN_TOKENS or self.is_off or self._save(tokens, seq_id)

    def save_checkpoint(self, sequence: Sequence) -> None:
        """Keep a running sequence as far as it is computed, where RAM has room for it beside others."""
        if not self.is_off and self.fits_ram(sequence.seq_id):
            self._save(sequence.prefix(sequence.num_computed), sequence.seq_id)

    def _save(self, tokens: Tokens, seq_id: int) -> bool:
        """What cannot be saved costs time later, and no request now."""
        try:
            self._states.put(tokens, self._context.save_sequence(seq_id))
        except (EngineFailure, MemoryError) as error:
            logger.warning("a sequence of %d tokens was not saved: %s", len(tokens), error)
            return False
        self.saved += 1
        return True

    def lift_budget(self) -> None:
        """See StateCache.lift_budget."""
        self._states.lift_budget()

    def flush(self, patience_s: float) -> None:
        """Write all states to disk, for so many seconds at most. For the end."""
        self._states.flush(patience_s)

    def is_fetching(self, sequence: Sequence, have: int) -> bool:
        """Whether a state with more of the prompt than the `have` tokens of the KV cache is on its way from disk.

        Starts to fetch it at the first call.
        """
        if sequence.wants_prompt_scores or sequence.resumed is not None:
            return False
        key = id(sequence)
        if key not in self._fetches:
            missed = self._states.version, have
            if self._missed.get(key) == missed:
                return False
            match = self._states.match(sequence.prefix())
            if match is None or not _pays(match.length - have, len(match.source.tokens)):
                self._missed[key] = missed
                return False
            self._fetches[key] = self._states.fetch(match), match.length
        return not self._fetches[key][0].done()

    def num_fetched(self, sequence: Sequence) -> int:
        """Tokens that the state holds which `is_fetching` found for a sequence; 0 without one."""
        fetch = self._fetches.get(id(sequence))
        return 0 if fetch is None else fetch[1]

    def wait(self) -> None:
        """Block until a fetch is done. For when there is nothing else to do."""
        for fetch, _ in list(self._fetches.values()):
            if not fetch.done():
                fetch.exception()
                return

    def forget(self, sequence: Sequence) -> None:
        """The sequence is not waiting any more."""
        self._fetches.pop(id(sequence), None)
        self._missed.pop(id(sequence), None)

    def restore(self, sequence: Sequence, have: int, make_room: Callable[[int], bool]) -> int:
        """Put a fetched state into the sequence's empty cells; the number of tokens that it has now, 0 if none.

        make_room: evicts until so many cells are free. Nothing is restored that does not pay, beside `have` tokens.
        """
        fetch = self._fetches.pop(id(sequence), None)
        self._missed.pop(id(sequence), None)
        try:
            state = fetch[0].result() if fetch is not None else None
        except (OSError, MemoryError) as error:
            logger.warning("a saved sequence was not read: %s", error)
            return 0
        if state is None:
            return 0
        # Preempted sequences come back with more tokens than they were matched with.
        length = common_prefix(sequence.prefix()[:-1], state.tokens)
        if self._cache.whole_only and length < len(state.tokens):
            return 0
        if not _pays(length - have, len(state.tokens)) or not make_room(len(state.tokens)):
            return 0
        if not self._context.restore_sequence(sequence.seq_id, state.data, len(state.tokens)):
            return 0
        is_cut = length == len(state.tokens) or self._context.truncate(sequence.seq_id, length)
        if not is_cut or not self._context.reaches_back(sequence.seq_id, length):
            self._context.remove(sequence.seq_id)
            return 0
        self.restored += 1
        return length
