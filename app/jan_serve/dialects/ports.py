"""Protocols of what the server gives to dialects: its models, and the control plane for LMDeploy's routes.

`control` and `supervisor` implement them; dialects never import these.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from jan_serve.core.kv_transfer import PeerEndpoint
from jan_serve.core.models import ManagerSnapshot, ModelSource
from jan_serve.generation.ports import ModelLeases, SequenceStates


class ServedModels(ModelLeases, Protocol):
    """The part of `supervisor.models.model_manager.ModelManager` that dialects, which never import it, may use."""

    async def models(self) -> Sequence[ModelSource]:
        """Every model that a request may name, loaded or not. May read the disk, off the event loop."""
        ...

    async def unload(self, name: str) -> bool:
        """Unload a model once its requests have finished; False if it was not loaded. Raises ModelNotFound."""
        ...

    def snapshot(self) -> ManagerSnapshot:
        """The models that were requested since the start. Never waits for a worker."""
        ...


class PeerLinks(SequenceStates, Protocol):
    """Links with other servers, and the sequence states that cross them; see `supervisor.kv_transfer.peer_links`.

    caller: stands for the key of a request. Links and states of one are not there for another one.
    """

    async def initialize(self, caller: str, local_id: str, remote_id: str) -> PeerEndpoint:
        """The endpoint that this peer may fetch from. Raises InvalidRequest, PeerFailed."""
        ...

    async def connect(self, caller: str, remote_id: str, endpoint: PeerEndpoint) -> None:
        """Fetch this peer's states from that endpoint. Raises InvalidRequest, PeerFailed."""
        ...

    def drop(self, caller: str, remote_id: str) -> bool:
        """Forget a peer; False if it is unknown."""
        ...

    def bind(self, caller: str, handle: int, session: int) -> None:
        """Let peers fetch a kept state by this session number."""
        ...

    def release(self, handle: int) -> bool:
        """Drop a kept state; False if it is gone."""
        ...

    def is_kept(self, caller: str, session: int) -> bool:
        """Whether a state is kept for this session."""
        ...

    def free(self, caller: str, session: int) -> bool:
        """Drop the state of a session; False if there is none."""
        ...


class ControlPlane(Protocol):
    """Sleep, weight updates, peers and the end of one server. may_…: allowed by its settings."""

    @property
    def links(self) -> PeerLinks: ...
    @property
    def is_sleeping(self) -> bool: ...
    @property
    def may_abort(self) -> bool: ...
    @property
    def may_terminate(self) -> bool: ...

    async def sleep(self, level: int) -> None:
        """Reject requests at once, end running ones, and free the memory. 2: delete the caches on disk too."""
        ...

    async def wake(self, tags: Iterable[str]) -> None:
        """Wake these parts; none means all."""
        ...

    async def update_weights(self, model: str | None, parts: Sequence[bytes], *, finished: bool) -> None:
        """Collect GGUF files of tensors; with `finished`, serve the model with all of them.

        Raises ModelNotFound, InvalidRequest, StoreError; the model then keeps its weights.
        """
        ...

    def terminate(self) -> None:
        """End the server as SIGTERM does. Returns at once."""
        ...
