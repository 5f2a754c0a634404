"""Transfers states of sequences between servers: the worker's transfer thread."""

from __future__ import annotations

import queue
from collections.abc import Callable
from pathlib import Path

from jan_serve.core.sequence_state import StateIdentity
from jan_serve.engine.cache.model_identity import digest_files, model_parts
from jan_serve.engine.kv_transfer.state_shelf import StateShelf
from jan_serve.engine.llama.bindings import lib
from jan_serve.errors import InvalidModel, JanServeError
from jan_serve.ipc.messages import DropState, Failed, LoadModel, ReadState, StatePart, StateStored, StoreState

TransferRequest = ReadState | StoreState | DropState


class _Prepare:
    """Compute the digest of the weights before a request needs it."""


class StateTransfer:
    """Owns the shelf. Computes the digest of the weights, which takes seconds for large models, on first use.

    rope_factors: those of the loaded model's context. Must be set before `run`.
    """

    def __init__(self, load: LoadModel, send: Callable[[StatePart | StateStored | Failed], None]) -> None:
        self.rope_factors = ""
        self._load = load
        self._send = send
        self._known: StateIdentity | None = None
        self._requests: queue.SimpleQueue[TransferRequest | _Prepare] = queue.SimpleQueue()
        self.shelf = StateShelf(
            self._identity, load.settings.state_bytes, on_kept=lambda: self._requests.put(_Prepare())
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
                    case _Prepare():
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
                files = [*model_parts(Path(self._load.path))]
                if settings.projector is not None:
                    files.append(Path(settings.projector))
                digest = digest_files(files)
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
