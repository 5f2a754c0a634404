"""States of sequences in transfer between servers, in the worker's memory: kept for other servers, or received.

The engine thread keeps states, the intake takes them, and the transfer thread does the rest, including the expensive
digests over the weights and over a state. Bounded in bytes; the request that created a state drops it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from jan_serve.core.sequence_state import SequenceState, StateIdentity, decode_state, encode_state
from jan_serve.errors import InvalidRequest, InvalidState, Overloaded
from jan_serve.ipc.messages import ReadState, StatePart, StateStored, StoreState

_HEADER_BYTES = 1 << 20
"""Bytes reserved for the header of a state."""


class StateShelf:
    """States by id, which the front chooses. identity: its first call may block for seconds."""

    def __init__(
        self,
        identity: Callable[[], StateIdentity],
        limit_bytes: int,
        on_kept: Callable[[], None] = lambda: None,
    ) -> None:
        """on_kept: called by the thread that keeps a state; must not block."""
        self._identity = identity
        self._limit = limit_bytes
        self._on_kept = on_kept
        self._lock = threading.Lock()
        self._kept: dict[int, SequenceState] = {}
        self._encoded: dict[int, tuple[bytes | memoryview, ...]] = {}
        self._arriving: dict[int, bytearray] = {}
        self._received: dict[int, SequenceState] = {}
        self._sizes: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._sizes)

    def reserve(self, state: int, size: int) -> None:
        """Reserve `size` bytes for a state to keep or to receive. Raises Overloaded."""
        with self._lock:
            used = sum(self._sizes.values()) - self._sizes.get(state, 0)
            if used + size > self._limit:
                raise Overloaded(
                    f"There is no room for the cache of this request ({size} bytes): {len(self._sizes)} caches for"
                    f" other servers take {used} of {self._limit} bytes."
                )
            self._sizes[state] = size

    def keep(self, state: int, content: SequenceState) -> None:
        """Hold a state, with bytes reserved, until `drop`."""
        with self._lock:
            self._kept[state] = content
        self._on_kept()

    def take(self, state: int) -> SequenceState:
        """Remove and return a received state. Its bytes stay reserved until `drop`. Raises InvalidRequest."""
        with self._lock:
            content = self._received.pop(state, None)
        if content is None:
            raise InvalidRequest("The migrated cache is not here.", param="migration_request")
        return content

    def drop(self, state: int) -> None:
        """Remove a state, kept or received, and its reservation. Unknown ids are ignored."""
        with self._lock:
            self._sizes.pop(state, None)
            self._kept.pop(state, None)
            self._encoded.pop(state, None)
            self._arriving.pop(state, None)
            self._received.pop(state, None)

    def read(self, request: ReadState) -> StatePart:
        """A part of a kept state. The first part blocks for the digests. Raises InvalidState."""
        with self._lock:
            parts, content = self._encoded.get(request.state), self._kept.get(request.state)
        if parts is None:
            if content is None:
                raise InvalidState("This cache is not kept here, or no longer.")
            parts = encode_state(content, self._identity())
            with self._lock:
                if request.state in self._kept:
                    self._encoded[request.state] = parts
        return StatePart(
            id=request.id,
            data=_slice(parts, request.offset, request.length),
            total=sum(map(len, parts)),
        )

    def store(self, request: StoreState) -> StateStored:
        """Append the next part of a state; the last one blocks for its validation. Raises InvalidState, Overloaded."""
        if request.total < 1:
            raise InvalidState("The state is empty.")
        if request.offset == 0:
            self.reserve(request.state, request.total)
            with self._lock:
                self._arriving[request.state] = bytearray()
        with self._lock:
            data = self._arriving.get(request.state)
        if data is None or len(data) != request.offset or len(data) + len(request.data) > request.total:
            raise InvalidState("The parts of a state do not fit together.")
        data += request.data
        if len(data) == request.total:
            content = decode_state(data, self._identity())
            with self._lock:
                if self._arriving.pop(request.state, None) is not None:
                    self._received[request.state] = content
        return StateStored(id=request.id, received=len(data))


def state_bytes(memory_bytes: int, n_vocab: int, n_tokens: int) -> int:
    """Bytes to reserve for a state."""
    return memory_bytes + 4 * n_vocab + 8 * n_tokens + _HEADER_BYTES


def _slice(parts: tuple[bytes | memoryview, ...], offset: int, length: int) -> bytes:
    """Bytes of the concatenated parts."""
    found: list[memoryview] = []
    for part in parts:
        if length <= 0:
            break
        if offset < len(part):
            piece = memoryview(part)[offset : offset + length]
            found.append(piece)
            length -= len(piece)
        offset = max(0, offset - len(part))
    return b"".join(found)
