"""What the control plane's routes work with, which wiring hands in."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from jan_serve.core.kv_transfer import PeerEndpoint
from jan_serve.generation.ports import SequenceStates


class PeerLinks(SequenceStates, Protocol):
    """Links with other servers, and the states of sequences that cross them; see supervisor.migration.links."""

    async def initialize(self, local_id: str, remote_id: str) -> PeerEndpoint:
        """Where the peer of this name may fetch. Raises InvalidRequest, PeerFailed."""
        ...

    async def connect(self, remote_id: str, endpoint: PeerEndpoint) -> None:
        """Fetch from there from now on. Raises InvalidRequest, PeerFailed."""
        ...

    def drop(self, remote_id: str) -> bool:
        """Forget a peer; False where it is not known."""
        ...

    def bind(self, handle: int, session: int) -> None:
        """Peers ask for a kept state by this number."""
        ...

    def release(self, handle: int) -> bool:
        """Drop a kept state; False where it is gone."""
        ...

    def is_kept(self, session: int) -> bool:
        """Whether something is kept by this number."""
        ...

    def free(self, session: int) -> bool:
        """Drop what is kept by this number; False where that is nothing."""
        ...


class Sleeper(Protocol):
    """Gives all memory back for a while; see supervisor.sleep."""

    @property
    def is_sleeping(self) -> bool:
        """Whether requests are refused."""
        ...

    async def sleep(self, level: int) -> None:
        """Refuse requests at once, end those that run, and give the memory back. 2: keep nothing on disk either."""
        ...

    async def wake(self, tags: Iterable[str]) -> None:
        """Wake these parts; none means all."""
        ...


class WeightUpdates(Protocol):
    """Replaces weights of models; see weight_updater."""

    async def add(self, model: str | None, parts: Sequence[bytes], *, finished: bool) -> None:
        """Take GGUF files with tensors; with `finished`, serve the model with all of them.

        Raises ModelNotFound, InvalidRequest, StoreError; the model then goes on as it was.
        """
        ...


class ControlPlane(Protocol):
    """What a server lets be done with itself. may_…: what its settings allow."""

    @property
    def links(self) -> PeerLinks: ...
    @property
    def sleeper(self) -> Sleeper: ...
    @property
    def weights(self) -> WeightUpdates: ...
    @property
    def may_abort(self) -> bool: ...
    @property
    def may_terminate(self) -> bool: ...

    def terminate(self) -> None:
        """End the server as a signal would. Returns at once."""
        ...
