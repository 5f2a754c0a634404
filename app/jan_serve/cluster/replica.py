"""What Ray Serve keeps running on a machine: one server, which is a node of the proxy like any other."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from jan_serve.cluster.child import COMMAND, Child
from jan_serve.cluster.cluster_file import ClusterFile
from jan_serve.cluster.scaling import OPEN_REQUESTS, SLOTS
from jan_serve.core.hosts import is_loopback
from jan_serve.membership.member import address_towards

_CALL_S: Final = 5.0
_POLL_S: Final = 0.25


class Unhealthy(Exception):
    """The server does not answer."""


class NoWay(Exception):
    """This machine does not reach the proxy."""


class Replica:
    """Starts a server and waits until the proxy sends requests to it. Ray Serve calls the methods.

    Only calls about the server's state go through Ray, no requests.
    """

    def __init__(
        self,
        content: dict[str, Any],
        command: Sequence[str] = COMMAND,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        """content: of a ClusterFile. Raises ChildEnded, NoWay."""
        self._child: Child | None = None
        self._pause = pause
        self._file = msgspec.convert(content, ClusterFile)
        self._drain_s = self._file.replicas.drain_s
        child = self._child = Child(
            server_settings(self._file, listening_host(self._file.proxy_url)), command
        )
        self.url = child.url()
        self._wait_for_requests(child)

    def check_health(self) -> None:
        """Ray Serve replaces this replica after this has failed three times in a row."""
        self._state()

    def record_autoscaling_stats(self) -> dict[str, float]:
        return {OPEN_REQUESTS: self._state()["open_requests"], SLOTS: self._file.replicas.slots}

    def __del__(self) -> None:
        """Ray Serve calls this before it ends a replica, and waits until it returns."""
        if self._child is not None:
            child, self._child = self._child, None
            child.stop(self._drain_s)

    def _state(self) -> dict[str, Any]:
        """The server's /health. Raises ChildEnded, Unhealthy."""
        import httpx2

        if self._child is None:
            raise Unhealthy("the server was ended")
        self._child.check()
        try:
            return _get(f"{self.url}/health", None).json()
        except (httpx2.HTTPError, ValueError) as error:
            raise Unhealthy(f"no answer from {self.url}: {error}") from None

    def _wait_for_requests(self, child: Child) -> None:
        """Until the proxy would send a request here: an update goes on only then. Raises ChildEnded."""
        while not self._is_routable():
            child.check()
            self._pause(_POLL_S)

    def _is_routable(self) -> bool:
        import httpx2

        try:
            answer = _get(f"{self._file.proxy_url}/extras/nodes", self._file.proxy_key)
            nodes = answer.raise_for_status().json()["nodes"]
        except (httpx2.HTTPError, ValueError):  # the proxy is away: no update goes on meanwhile
            return False
        return any(node["routable"] and _is_at(node["url"], self.url) for node in nodes)


def listening_host(proxy_url: str) -> str:
    """The address of this machine that the proxy reaches; blocks for a look-up of its name. Raises NoWay."""
    host = urlsplit(proxy_url).hostname or ""
    if is_loopback(host):
        return "127.0.0.1"
    found = address_towards(proxy_url)
    if found is None:
        raise NoWay(f"this machine has no way to the proxy at {proxy_url}")
    return found


def server_settings(file: ClusterFile, host: str) -> dict[str, Any]:
    """Settings of one server, by name."""
    ours = {"host": host, "proxy_url": file.proxy_url, "drain_timeout_s": file.replicas.drain_s}
    if file.proxy_key is not None:
        ours["proxy_key"] = file.proxy_key
    return {**file.serve, **ours}


def _is_at(node: str, url: str) -> bool:
    """A node with a role has a path behind the address of its server."""
    return node == url or node.startswith(f"{url}/")


def _get(url: str, key: str | None) -> Any:
    import httpx2

    headers = {} if key is None else {"authorization": f"Bearer {key}"}
    with httpx2.Client(timeout=_CALL_S, headers=headers, trust_env=False) as client:
        return client.get(url)
