"""Saves evicted sequences to the tiers below, and restores them for prompts. For the engine thread."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future
from typing import NamedTuple

from jan_serve.core.events import CacheTier
from jan_serve.engine.cache.prefix_cache import CellCounter, PrefixCache
from jan_serve.engine.cache.state_cache import MIN_TOKENS, SavedState, StateCache, StateMatch
from jan_serve.engine.llama.context import LlamaContext
from jan_serve.engine.sequence import Sequence
from jan_serve.engine.tokens import Tokens, common_prefix
from jan_serve.errors import EngineFailure

_MIN_STATES_IN_RAM = 4  # a larger state than this part of the RAM budget is not kept there

_MIN_GAIN = 1 / 16
"""Restores a state only if it saves at least 1/16 of its tokens: all are read, copied and need cells for a moment."""

logger = logging.getLogger(__name__)


def _pays(gain: int, length: int) -> bool:
    return gain >= max(MIN_TOKENS, int(length * _MIN_GAIN))


def _match_pays(match: StateMatch, num_cached: int) -> bool:
    return _pays(match.length - num_cached, len(match.source.tokens))


class _Fetch(NamedTuple):
    """A state on its way to a waiting sequence, or there and not restored yet."""

    match: StateMatch
    future: Future[SavedState | None]


class StateRestorer:
    """Saves and restores for one context. Reads its cell counts and cached sequences; changes neither."""

    def __init__(
        self,
        states: StateCache,
        context: LlamaContext,
        cells: CellCounter,
        cache: PrefixCache,
        on_fetched: Callable[[], None] = lambda: None,
    ) -> None:
        """on_fetched: called by the disk's thread when a fetch ends."""
        self.tiers = states
        self._context = context
        self._cells = cells
        self._cache = cache
        self._on_fetched = on_fetched
        # By waiting sequence. A look-up is kept until its fetch starts: what was found with this version of the cache
        # and so many cached tokens.
        self._fetches: dict[int, _Fetch] = {}
        self._look_ups: dict[int, tuple[tuple[int, int], StateMatch | None]] = {}
        self.saved = self.restored = 0

    def fits_ram(self, seq_id: int) -> bool:
        """Whether the state of a sequence leaves room in RAM for others."""
        return self._context.state_bytes(seq_id) <= self.tiers.ram_bytes // _MIN_STATES_IN_RAM

    def save_evicted(self, seq_id: int) -> bool:
        """Save an entry of the prefix cache before its cells are freed. Blocks for the copy. False if that failed.
        Skips an entry that the rest of the KV cache holds nearly all of."""
        tokens = self._cache.tokens(seq_id)
        alone = len(tokens) if self._cache.whole_only else self._cells.exclusive(seq_id)
        return alone < MIN_TOKENS or self.tiers.is_off or self._save(tokens, seq_id)

    def save_checkpoint(self, sequence: Sequence) -> None:
        """Save a running sequence as far as it is computed, if that leaves room in RAM for others."""
        if not self.tiers.is_off and self.fits_ram(sequence.seq_id):
            self._save(sequence.prefix(sequence.num_computed), sequence.seq_id)

    def _save(self, tokens: Tokens, seq_id: int) -> bool:
        # A failed save costs time later and fails no request.
        try:
            self.tiers.put(tokens, self._context.save_sequence(seq_id))
        except (EngineFailure, MemoryError) as error:
            logger.warning("a sequence of %d tokens was not saved: %s", len(tokens), error)
            return False
        self.saved += 1
        return True

    def is_fetching(self, sequence: Sequence, num_cached: int) -> bool:
        """Whether a state with more of the prompt than the KV cache's `num_cached` tokens is on its way from disk. The
        first call starts the fetch if the states that were fetched and not restored leave room for one more."""
        if sequence.wants_prompt_scores or sequence.resumed is not None:
            return False
        key = id(sequence)
        fetch = self._fetches.get(key)
        if fetch is not None and not _match_pays(fetch.match, num_cached):
            self.forget(sequence)
            fetch = None
        if fetch is None:
            match = self._look_up(sequence, num_cached)
            if match is None:
                return False
            if not self._has_room(match):
                return True
            del self._look_ups[key]
            fetch = self._fetches[key] = _Fetch(match, self.tiers.fetch(match))
            if not fetch.future.done():
                fetch.future.add_done_callback(lambda _future: self._on_fetched())
        return not fetch.future.done()

    def _look_up(self, sequence: Sequence, num_cached: int) -> StateMatch | None:
        """The state that pays. Looks again only if there are other states or cached tokens than before."""
        state, known = (self.tiers.version, num_cached), self._look_ups.get(id(sequence))
        if known is None or known[0] != state:
            match = self.tiers.match(sequence.prefix(), sequence.media.cut)
            if match is not None and not _match_pays(match, num_cached):
                match = None
            known = self._look_ups[id(sequence)] = state, match
        return known[1]

    def _has_room(self, match: StateMatch) -> bool:
        """Whether a state may be fetched: fetched ones are held outside the RAM budget, and may be as large as it."""
        held = {id(fetch.match.source): fetch.match.size for fetch in self._fetches.values()}
        if isinstance(match.source, SavedState) or not held or id(match.source) in held:
            return True
        return sum(held.values()) + match.size <= self.tiers.ram_bytes

    def num_fetched(self, sequence: Sequence) -> int:
        """Tokens of a sequence in the state that `is_fetching` found; 0 without one."""
        fetch = self._fetches.get(id(sequence))
        return 0 if fetch is None else fetch.match.length

    def tier_of(self, sequence: Sequence) -> CacheTier | None:
        """Where the state that `is_fetching` found comes from."""
        fetch = self._fetches.get(id(sequence))
        if fetch is None:
            return None
        return "ram" if isinstance(fetch.match.source, SavedState) else "disk"

    @property
    def is_reading(self) -> bool:
        """Whether any fetch is not done."""
        return any(not fetch.future.done() for fetch in self._fetches.values())

    def forget(self, sequence: Sequence) -> None:
        """Drop the fetch of a sequence that no longer waits, or no longer gains by it."""
        self._look_ups.pop(id(sequence), None)
        fetch = self._fetches.pop(id(sequence), None)
        if fetch is not None and all(other.future is not fetch.future for other in self._fetches.values()):
            # Without effect once the read runs.
            fetch.future.cancel()

    def restore(self, sequence: Sequence, num_cached: int, make_room: Callable[[int], bool]) -> int:
        """Restore a fetched state into the empty sequence. Returns its number of tokens; 0 if nothing was restored.

        num_cached: tokens that the KV cache can share instead. make_room: evicts until that many cells are free.
        """
        fetch = self._fetches.pop(id(sequence), None)
        self._look_ups.pop(id(sequence), None)
        try:
            state = fetch.future.result() if fetch is not None else None
        except (OSError, MemoryError) as error:
            logger.warning("a saved sequence was not read: %s", error)
            return 0
        if state is None:
            return 0
        # A preempted sequence has more tokens now than at the match.
        length = sequence.media.cut(common_prefix(sequence.prefix()[:-1], state.tokens))
        if self._cache.whole_only and length < len(state.tokens):
            return 0
        if not _pays(length - num_cached, len(state.tokens)) or not make_room(len(state.tokens)):
            return 0
        if not self._context.restore_sequence(sequence.seq_id, state.data, len(state.tokens)):
            return 0
        position = sequence.position(length)
        is_cut = length == len(state.tokens) or self._context.truncate(sequence.seq_id, position)
        if not is_cut or not self._context.reaches_back(sequence.seq_id, position):
            self._context.remove(sequence.seq_id)
            return 0
        self.restored += 1
        return length
