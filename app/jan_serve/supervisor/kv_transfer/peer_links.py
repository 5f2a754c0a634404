"""Links between servers for disaggregated serving: states kept for peers, and states fetched from them.

LMDeploy's flow (`lmdeploy/pytorch/disagg`): both servers initialise the link (`initialize`), each gets the other's
endpoint (`connect`), the decode server fetches the state, and the prefill server drops it.
"""

from __future__ import annotations

import logging
import secrets
from typing import Final
from urllib.parse import urlsplit

from jan_serve.core.hosts import is_everywhere, is_loopback
from jan_serve.core.kv_transfer import KEY_BYTES, PeerEndpoint, RemoteState
from jan_serve.errors import InvalidRequest, PeerFailed
from jan_serve.supervisor.kv_transfer.peer_connection import MAX_NAME_BYTES, PeerConnection, connect
from jan_serve.supervisor.kv_transfer.state_transfer import (
    KeptStates,
    Link,
    StateHolder,
    StateServer,
    ping,
    pull,
)

logger = logging.getLogger(__name__)

MAX_LINKS: Final = 256
"""Links that one key may have."""
KEEP_S: Final = 600.0
PATIENCE_S: Final = 120.0
"""A peer's worker reads all its weights, for their digest, before its first state."""
_CONNECT_S: Final = 5.0


class TcpPeerLinks:
    """`dialects.ports.PeerLinks` over TCP. Event loop only. host: the server's bind address; a server on
    loopback links only with peers on loopback. keep_s: until an unfetched state is dropped."""

    def __init__(self, host: str, *, keep_s: float = KEEP_S, patience_s: float = PATIENCE_S) -> None:
        self._host = "127.0.0.1" if host == "localhost" else host
        self._patience_s = patience_s
        self._links: dict[tuple[str, str], Link] = {}  # by the caller and the peer's id
        self._by_name: dict[str, Link] = {}
        self._kept = KeptStates(keep_s)
        self._server = StateServer(self._kept, self._by_name.get, patience_s=patience_s)
        self._fetching: set[PeerConnection] = set()

    @property
    def open_connections(self) -> int:
        return self._server.open_connections + len(self._fetching)

    @property
    def kept_states(self) -> int:
        return len(self._kept)

    # Links

    async def initialize(self, caller: str, local_id: str, remote_id: str) -> PeerEndpoint:
        """The endpoint that this peer may fetch from. Starts to listen. Raises InvalidRequest, PeerFailed."""
        for name, param in ((local_id, "local_engine_id"), (remote_id, "remote_engine_id")):
            if not 0 < len(name.encode("utf-8", "replace")) <= MAX_NAME_BYTES:
                raise InvalidRequest(f"{param}: must have 1 to {MAX_NAME_BYTES} bytes", param=param)
        others = sum(link.caller == caller for link in self._links.values())
        if (caller, remote_id) not in self._links and others >= MAX_LINKS:
            reason = f"This server has {MAX_LINKS} links: drop one first."
            raise InvalidRequest(reason, param="remote_engine_id")
        host = self._advertised_host(local_id)
        try:
            port = await self._server.listen(self._host)
        except OSError as error:
            raise PeerFailed(f"No port can be opened on {self._host}: {error.strerror}.") from None
        self.drop(caller, remote_id)
        link = Link(secrets.token_hex(16), secrets.token_bytes(KEY_BYTES), caller)
        self._links[caller, remote_id] = self._by_name[link.name] = link
        return PeerEndpoint(host, port, link.name, link.key)

    async def connect(self, caller: str, remote_id: str, endpoint: PeerEndpoint) -> None:
        """Fetch this peer's states from that endpoint, which is pinged now. Raises InvalidRequest, PeerFailed."""
        link = self._links.get((caller, remote_id))
        if link is None:
            reason = f"There is no link with {remote_id!r}: call /distserve/p2p_initialize first."
            raise InvalidRequest(reason, param="remote_engine_id")
        self._check_host(endpoint.host)
        connection = await self._open(endpoint)
        try:
            await ping(connection)
        finally:
            await connection.close()
        link.peer = endpoint
        logger.info("linked with %s at %s port %d", remote_id, endpoint.host, endpoint.port)

    def drop(self, caller: str, remote_id: str) -> bool:
        """Forget a peer and close its connections; False if it is unknown."""
        link = self._links.pop((caller, remote_id), None)
        if link is None:
            return False
        del self._by_name[link.name]
        self._server.drop(link.name)
        return True

    async def close(self) -> None:
        """Drop all links and states, and stop listening."""
        self._links.clear()
        self._by_name.clear()
        self._kept.clear()
        for connection in list(self._fetching):
            connection.abort()
        await self._server.close()

    # States

    def keep(self, owner: StateHolder, state: int) -> int:
        """Take ownership of a state in a worker. Returns a handle, for `bind`."""
        return self._kept.add(owner, state)

    def release(self, handle: int) -> bool:
        return self._kept.drop(handle)

    def bind(self, caller: str, handle: int, session: int) -> None:
        self._kept.bind(handle, (caller, session))

    def is_kept(self, caller: str, session: int) -> bool:
        return self._kept.find((caller, session)) is not None

    def free(self, caller: str, session: int) -> bool:
        return self._kept.free((caller, session))

    async def fetch(self, wanted: RemoteState, taker: StateHolder, state: int) -> None:
        """Copy a state from a peer into a worker, as its `state`, which the caller drops there in every case. Raises
        InvalidRequest without a link, PeerFailed, InvalidState, Overloaded. Safe to cancel."""
        link = self._links.get((wanted.caller, wanted.engine))
        if link is None or link.peer is None:
            reason = f"migration_request: this server is not linked with {wanted.engine!r}."
            raise InvalidRequest(reason, param="migration_request")
        connection = await self._open(link.peer)
        self._fetching.add(connection)
        try:
            await pull(connection, wanted.session, taker, state)
        except BaseException:
            connection.abort()
            raise
        finally:
            self._fetching.discard(connection)
        connection.close_soon()

    async def _open(self, peer: PeerEndpoint) -> PeerConnection:
        connect_s, patience_s = min(_CONNECT_S, self._patience_s), self._patience_s
        return await connect(
            peer.host, peer.port, peer.name, peer.key, connect_s=connect_s, patience_s=patience_s
        )

    def _advertised_host(self, local_id: str) -> str:
        """The bind address, or the caller's name for this server if that is every one. Raises InvalidRequest."""
        if not is_everywhere(self._host):
            return self._host
        try:
            return urlsplit(local_id).hostname or self._host
        except ValueError as error:
            raise InvalidRequest(f"local_engine_id: not a URL ({error})", param="local_engine_id") from None

    def _check_host(self, host: str) -> None:
        if is_loopback(self._host) and not is_loopback(host):
            raise InvalidRequest(
                f"This server listens on {self._host}, and links with servers on the same machine only, not {host}.",
                param="remote_kvtransfer_endpoint_info",
            )
