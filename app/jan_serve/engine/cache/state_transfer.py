"""A worker keeps states of sequences for other servers, receives theirs, and transfers them in a thread of its own."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

import msgspec

from jan_serve.core.kv_transfer import SequenceState, StateIdentity, decode_state, encode_state
from jan_serve.engine.cache.state_identity import digest_files, model_files
from jan_serve.engine.llama.bindings import lib
from jan_serve.errors import InvalidModel, InvalidRequest, InvalidState, JanServeError, Overloaded
from jan_serve.ipc.messages import DropState, Failed, LoadModel, ReadState, StatePart, StateStored, StoreState

_HEADER_BYTES = 1 << 20  # reserved for the header of a state


class _Entry(msgspec.Struct, eq=False):
    """A state that is kept here, with its encoding once it was read, or one that arrives. size: bytes reserved."""

    size: int
    kept: SequenceState | None = None
    parts: tuple[bytes | memoryview, ...] = ()
    arriving: bytearray | None = None
    received: SequenceState | None = None


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
        self._entries: dict[int, _Entry] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def reserve(self, state: int, size: int) -> _Entry:
        """Reserve `size` bytes for a state to keep or to receive. Raises Overloaded."""
        with self._lock:
            used = sum(entry.size for key, entry in self._entries.items() if key != state)
            if used + size > self._limit:
                raise Overloaded(
                    f"There is no room for the cache of this request ({size} bytes): {len(self._entries)} caches for"
                    f" other servers take {used} of {self._limit} bytes."
                )
            entry = self._entries[state] = _Entry(size)
        return entry

    def keep(self, state: int, content: SequenceState) -> None:
        """Hold a state, with bytes reserved, until `drop`. One that was dropped meanwhile is not held."""
        with self._lock:
            entry = self._entries.get(state)
            if entry is not None:
                entry.kept = content
        self._on_kept()

    def take(self, state: int) -> SequenceState:
        """Remove and return a received state. Its bytes stay reserved until `drop`. Raises InvalidRequest."""
        with self._lock:
            entry = self._entries.get(state)
            content = None if entry is None else entry.received
            if entry is None or content is None:
                raise InvalidRequest("The migrated cache is not here.", param="migration_request")
            entry.received = None
        return content

    def drop(self, state: int) -> None:
        """Remove a state, kept or received, and its reservation. Unknown ids are ignored."""
        with self._lock:
            self._entries.pop(state, None)

    def read(self, request: ReadState) -> StatePart:
        """A part of a kept state. The first part blocks for the digests. Raises InvalidState. One thread."""
        entry = self._entries.get(request.state)
        if entry is None or entry.kept is None:
            raise InvalidState("This cache is not kept here, or no longer.")
        entry.parts = entry.parts or encode_state(entry.kept, self._identity())
        data = _slice(entry.parts, request.offset, request.length)
        return StatePart(id=request.id, data=data, total=sum(map(len, entry.parts)))

    def store(self, request: StoreState) -> StateStored:
        """Append the next part of a state; the last one blocks for its validation. One thread. Raises InvalidState,
        Overloaded."""
        if request.total < 1:
            raise InvalidState("The state is empty.")
        if request.offset == 0:
            self.reserve(request.state, request.total).arriving = bytearray()
        entry = self._entries.get(request.state)
        data = None if entry is None else entry.arriving
        if (
            entry is None
            or data is None
            or len(data) != request.offset
            or len(data) + len(request.data) > request.total
        ):
            raise InvalidState("The parts of a state do not fit together.")
        data += request.data
        if len(data) == request.total:
            entry.received, entry.arriving = decode_state(data, self._identity()), None
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


TransferRequest = ReadState | StoreState | DropState


class StateTransfer:
    """Owns the shelf. Computes the digest of the weights, which takes seconds for large models, on first use.

    rope_factors: those of the loaded model's context. Must be set before `run`.
    """

    def __init__(self, load: LoadModel, send: Callable[[StatePart | StateStored | Failed], None]) -> None:
        self.rope_factors = ""
        self._load = load
        self._send = send
        self._known: StateIdentity | None = None
        self._requests: queue.SimpleQueue[TransferRequest | None] = queue.SimpleQueue()
        # Once a state is kept, the digest of the weights is computed before a request needs it.
        self.shelf = StateShelf(
            self._identity, load.settings.state_bytes, on_kept=lambda: self._requests.put(None)
        )

    def put(self, request: TransferRequest) -> None:
        """Queue a request. Any thread; never blocks."""
        self._requests.put(request)

    def run(self) -> None:
        """Serve requests for ever: the body of the transfer thread."""
        while True:
            request = self._requests.get()
            try:
                match request:
                    case None:
                        self._identity()
                    case ReadState():
                        self._send(self.shelf.read(request))
                    case StoreState():
                        self._send(self.shelf.store(request))
                    case DropState():
                        self.shelf.drop(request.state)
            except JanServeError as error:
                if isinstance(request, ReadState | StoreState):  # the others have no reply
                    self._send(Failed(id=request.id, code=error.code, payload=error.payload()))

    def _identity(self) -> StateIdentity:
        if self._known is None:
            settings = self._load.settings
            try:
                digest = digest_files(model_files(self._load))
            except OSError as error:
                raise InvalidModel(f"The file of the model cannot be read: {error.strerror}.") from None
            self._known = StateIdentity(
                model=digest,
                type_k=settings.type_k,
                type_v=settings.type_v,
                llama_state=int(lib.LLAMA_STATE_SEQ_VERSION),
                rope_factors=self.rope_factors,
            )
        return self._known
