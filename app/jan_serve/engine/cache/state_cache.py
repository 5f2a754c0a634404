"""The tiers below the KV cache: states of evicted sequences, in RAM and below that on disk. Moves bytes only."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from weakref import WeakValueDictionary

import msgspec

from jan_serve.engine.cache.prefix_index import BLOCK, PrefixIndex, Tokenised
from jan_serve.engine.cache.state_files import StateFile, StateFiles, file_bytes
from jan_serve.engine.llama.context import SequenceBytes
from jan_serve.engine.tokens import Tokens

MIN_TOKENS = BLOCK  # computing a shorter prefix takes about as long as restoring it


class SavedState(Tokenised, frozen=True, eq=False):
    """The state of a sequence after `tokens`, as llama.cpp wrote it."""

    data: SequenceBytes


class StateMatch(msgspec.Struct, frozen=True, eq=False):
    """A state with the first `length` tokens of a prompt."""

    length: int
    source: SavedState | StateFile

    @property
    def size(self) -> int:
        """Bytes of memory that its state takes."""
        return self.source.size if isinstance(self.source, StateFile) else len(self.source.data)


class StateCache:
    """States by recency, in `ram_bytes` of RAM and in `files`. whole_only: they are usable only as a whole."""

    def __init__(self, ram_bytes: int, files: StateFiles | None = None, *, whole_only: bool = False) -> None:
        self._whole_only = whole_only
        self.ram_bytes = ram_bytes
        self.ram_used = 0
        self._states: PrefixIndex[SavedState] = PrefixIndex()  # least recently used first
        self._files = files
        self._unwritten = 0
        self.version = 0
        """Changes with every new state, in RAM or on disk: only then may `match` find more than before."""
        self._writes: set[Future[None]] = set()
        # As long as anyone holds one, it has the state or will have it.
        self._reads: WeakValueDictionary[StateFile, Future[SavedState | None]] = WeakValueDictionary()
        # Reentrant: a write that is already done calls back in the submitting thread.
        self._lock = threading.RLock()
        # One thread, which alone touches the files.
        self._disk = ThreadPoolExecutor(1, "states") if files is not None else None
        if self._disk is not None:
            self._disk.submit(int)  # starts its thread: a lack of threads fails the load, and no answer later

    @property
    def disk_bytes(self) -> int:
        """Most bytes of all files together; 0 without files."""
        return 0 if self._files is None else self._files.budget_bytes

    @property
    def is_off(self) -> bool:
        """Whether there are no tiers, so that saving a state is useless."""
        return self.ram_bytes == 0 and self._files is None

    def put(self, tokens: Tokens, data: SequenceBytes) -> None:
        """Add a state. Replaces those that it covers, and evicts the oldest to disk. A state larger than the RAM goes
        to disk at once, and displaces none."""
        state = SavedState(tokens.copy(), data)
        with self._lock:
            if len(data) > self.ram_bytes:
                self._write(state)
                return
            for other in self._states.beginnings(tokens):
                if not self._whole_only or len(other.tokens) == len(tokens):
                    self._drop(other)
            self._states.add(state)
            self.ram_used += len(data)
            self.version += 1
            self.trim()

    def trim(self) -> None:
        """Evict the oldest states to disk until the others fit the RAM."""
        with self._lock:
            while self.ram_used > self.ram_bytes:
                oldest = self._states.first
                self._drop(oldest)
                self._write(oldest)

    def match(self, prompt: Tokens, cut: Callable[[int], int] = lambda length: length) -> StateMatch | None:
        """The state with the longest usable prefix of `prompt`. Leaves at least one token of it to compute.

        cut: shortens a length to a usable one.
        """
        best: StateMatch | None = None
        for index in (self._states,) if self._files is None else (self._states, self._files.index):
            if self._whole_only:
                found = next(((item, len(item.tokens)) for item in index.beginnings(prompt[:-1])), None)
            else:
                found = index.longest(prompt[:-1])
            if found is not None and (length := cut(found[1])) >= MIN_TOKENS:
                best = StateMatch(length, found[0]) if best is None or length > best.length else best
        return best

    def fetch(self, match: StateMatch) -> Future[SavedState | None]:
        """The state of a match: done at once from RAM, later from disk. None if it is gone or corrupt. All who wait for
        a file share one future of it."""
        future: Future[SavedState | None] = Future()
        source = match.source
        if isinstance(source, SavedState):
            with self._lock:
                if source in self._states:
                    self._states.add(source)
            future.set_result(source)
            return future
        if self._disk is None:
            raise ValueError("this cache has no files")
        with self._lock:
            read = self._reads.get(source)
            if read is None or read.cancelled():
                read = self._reads[source] = self._disk.submit(self._read, source)
        return read

    @contextmanager
    def without_limit(self) -> Generator[None]:
        """Keep all states of the block in RAM, until `flush` or the next `trim`."""
        limit = self.ram_bytes
        with self._lock:
            self.ram_bytes = sys.maxsize
        try:
            yield
        finally:
            with self._lock:
                self.ram_bytes = limit

    def flush(self, timeout_s: float) -> None:
        """Write the states in RAM to disk, most recently used first; at shutdown. Blocks up to `timeout_s`. Omits those
        beyond the disk budget: their files would take the place of the more recent ones."""
        if self._disk is None:
            return
        room = self.disk_bytes
        with self._lock:
            writes = set(self._writes)
            states, self.ram_used = list(self._states), 0
            self._states.clear()
            for state in reversed(states):
                size = file_bytes(len(state.tokens), len(state.data))
                if size <= room:
                    room -= size
                    writes.add(self._disk.submit(self._write_now, state))
        wait(writes, timeout=timeout_s)
        self._disk.shutdown(wait=False, cancel_futures=True)

    def clear(self) -> None:
        """Remove all states, including the files. Blocks."""
        with self._lock:
            self._states.clear()
            self.ram_used = 0
        if self._disk is not None and self._files is not None:
            self._disk.submit(self._files.clear).result()

    def _drop(self, state: SavedState) -> None:
        self._states.remove(state)
        self.ram_used -= len(state.data)

    def _write(self, state: SavedState) -> None:
        """Queue a state for the disk thread, unless its backlog would exceed the RAM budget."""
        if self._disk is None or self._unwritten + len(state.data) > max(self.ram_bytes, len(state.data)):
            return
        self._unwritten += len(state.data)
        write = self._disk.submit(self._write_now, state)
        self._writes.add(write)
        write.add_done_callback(lambda done: self._written(done, len(state.data)))

    def _written(self, write: Future[None], size: int) -> None:
        with self._lock:
            self._writes.discard(write)
            self._unwritten -= size

    def _write_now(self, state: SavedState) -> None:
        assert self._files is not None
        index, tokens = self._files.index, state.tokens
        older = index.beginnings(tokens)
        if any(len(file.tokens) == len(tokens) for file in older):
            return
        if not self._whole_only:
            if index.has_beginning(tokens):
                return
            for file in older:
                self._files.remove(file)
        if self._files.write(state.tokens, state.data):
            with self._lock:
                self.version += 1

    def _read(self, file: StateFile) -> SavedState | None:
        assert self._files is not None
        data = self._files.read(file)
        if data is None:
            return None
        state = SavedState(file.tokens, data)
        if len(data) <= self.ram_bytes:
            self.put(state.tokens, state.data)
        return state
