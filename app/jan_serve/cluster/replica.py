"""What Ray Serve keeps running on a machine: a server process, which is a node of the proxy like any other."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from jan_serve.cluster.cluster_file import ClusterFile
from jan_serve.cluster.scaling import OPEN_REQUESTS, SLOTS
from jan_serve.core.hosts import is_loopback
from jan_serve.membership.member import address_towards

COMMAND: Final = (sys.executable, "-P", "-m", "jan_serve", "cluster-replica")
_KEPT_LINES: Final = 20
_END_S: Final = 10.0
"""How long the process gets beyond its drain."""


class ChildEnded(Exception):
    """The process ended by itself. The message has the end of its log."""


class Child:
    """Every method blocks. The process outlives this one by its drain at most: its standard input ends with us."""

    def __init__(self, settings: Mapping[str, Any], command: Sequence[str] = COMMAND) -> None:
        """settings: of `jan-serve serve`, by name. They hold keys, so that they are neither arguments nor variables."""
        self._log: deque[str] = deque(maxlen=_KEPT_LINES)
        # A group of its own: what is sent to Ray's processes does not reach it.
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=_environment(os.environ),
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read_log, name="log of the server", daemon=True)
        self._reader.start()
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # `url` says why
            self._process.stdin.write(msgspec.json.encode(settings) + b"\n")
            self._process.stdin.flush()

    @property
    def pid(self) -> int:
        return self._process.pid

    def url(self) -> str:
        """Where it listens; waits until it does. Raises ChildEnded."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline().decode().strip()
        if not line:
            self._process.wait()
            self.check()
        return line

    def check(self) -> None:
        """Raises ChildEnded if the server's process has ended."""
        status = self._process.poll()
        if status is not None:
            self._reader.join(_END_S)
            raise ChildEnded(f"the server ended with status {status}:\n" + "\n".join(self._log))

    def stop(self, drain_s: float) -> None:
        """Let running answers finish, at most for `drain_s`, then end it."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # it ended before
            self._process.stdin.close()
        try:
            self._process.wait(drain_s + _END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join(_END_S)
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _read_log(self) -> None:
        """Pass the log on to Ray's log of this process."""
        assert self._process.stderr is not None
        with self._process.stderr as lines:
            for line in lines:
                text = line.decode(errors="replace").rstrip("\n")
                self._log.append(text)
                sys.stderr.write(text + "\n")


def _environment(variables: Mapping[str, str]) -> dict[str, str]:
    """The environment without what Ray sets for its own work: its token, and how many threads its workers use."""
    names = [name for name in variables if name != "OMP_NUM_THREADS" and not name.startswith("RAY_")]
    return {name: variables[name] for name in names}


_CALL_S: Final = 5.0
_POLL_S: Final = 0.25


class Unhealthy(Exception):
    """The server does not answer."""


class NoWay(Exception):
    """This machine does not reach the proxy."""


class Replica:
    """Starts a server and waits until the proxy sends requests to it. Ray Serve calls the methods."""

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
        settings = server_settings(self._file, listening_host(self._file.proxy_url))
        child = self._child = Child(settings, command)
        self.url = child.url()
        # An update goes on only once the proxy would send a request here.
        while not self._is_routable():
            child.check()
            self._pause(_POLL_S)

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

    def _is_routable(self) -> bool:
        import httpx2

        try:
            answer = _get(f"{self._file.proxy_url}/extras/nodes", self._file.proxy_key)
            nodes = answer.raise_for_status().json()["nodes"]
        except (httpx2.HTTPError, ValueError):  # the proxy is away: no update goes on meanwhile
            return False
        # A node with a role has a path behind the address of its server.
        return any(node["routable"] and f"{node['url']}/".startswith(f"{self.url}/") for node in nodes)


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
    ours = {"host": host, "proxy_url": file.proxy_url, "drain_timeout_s": file.replicas.drain_s}
    key = {} if file.proxy_key is None else {"proxy_key": file.proxy_key}
    return {**file.serve, **ours, **key}


def _get(url: str, key: str | None) -> Any:
    import httpx2

    headers = {} if key is None else {"authorization": f"Bearer {key}"}
    with httpx2.Client(timeout=_CALL_S, headers=headers, trust_env=False) as client:
        return client.get(url)
