"""Registers this server at a proxy, ours or LMDeploy's, and keeps it registered while it listens."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import Any, Final, cast
from urllib.parse import urlsplit

import msgspec

from jan_serve import __version__
from jan_serve.core.hosts import is_everywhere
from jan_serve.daemon.running import ServerObserver

NODE_HEADER: Final = "x-jan-serve-node"
"""Our proxy names the node that it added. LMDeploy's does not."""
_CALL_S: Final = 15.0
_WITHDRAW_S: Final = 2.0
_ROLES: Final = {"hybrid": 1, "prefill": 2, "decode": 3}
_ADDED: Final = "Added successfully"


class Membership(msgspec.Struct, frozen=True):
    """url: of this server, as the proxy calls it. key: of the proxy. own_key: of this server. speed: if it is known."""

    proxy_url: str
    url: str
    role: str
    key: str | None = None
    speed: float | None = None
    own_key: str | None = None

    def body(self, models: Sequence[str] = ()) -> dict[str, object]:
        """LMDeploy's `Node`. Without models, the proxy asks for them."""
        status: dict[str, object] = {"role": _ROLES[self.role]}
        if models:
            status["models"] = list(models)
        if self.speed is not None:
            status["speed"] = int(self.speed) if self.speed == int(self.speed) else self.speed
        return {"url": self.url, "status": status}


class Registration:
    """What the proxy knows of this server."""

    def __init__(self) -> None:
        self._is_lmdeploys = False

    async def renew(self, membership: Membership) -> str | None:
        """Be a node of the proxy. Why it failed, if it did."""
        if not self._is_lmdeploys:
            answer = await _call(membership, "/nodes/add", membership.body())
            if answer.status != HTTPStatus.OK or answer.is_ours:
                return answer.problem
            self._is_lmdeploys = True
        return await self._renew_at_lmdeploys(membership)

    async def _renew_at_lmdeploys(self, membership: Membership) -> str | None:
        """Add this server if it is not listed: adding it again sets the counters of its running requests to 0. It
        names its models, because that proxy has no key to ask for them."""
        own = await _exchange("GET", f"{membership.url}/v1/models", membership.own_key)
        models = _names(own.content)
        if not models:
            return f"this server does not list its models at {membership.url}: {own.text[:500]}"
        nodes = (await _exchange("GET", f"{membership.proxy_url}/nodes/status", membership.key)).content
        if isinstance(nodes, dict):
            node = cast(dict[str, Any], nodes).get(membership.url)
            if isinstance(node, dict) and cast(dict[str, Any], node).get("models") == models:
                return None
        answer = await _call(membership, "/nodes/add", membership.body(models))
        self._is_lmdeploys = not answer.is_ours
        return answer.problem

    async def withdraw(self, membership: Membership) -> str | None:
        """Be no node any more. Why it failed, if it did."""
        answer = await _call(membership, "/nodes/remove", membership.body(), _WITHDRAW_S)
        return None if answer.status == HTTPStatus.OK else answer.text[:500]


class _Answer(msgspec.Struct, frozen=True):
    """status: 0 if there is none; then the text is the reason."""

    status: int
    text: str
    is_ours: bool = False

    @property
    def problem(self) -> str | None:
        """LMDeploy's proxy answers 200 to failures, too, with another text."""
        return None if self.status == HTTPStatus.OK and _ADDED in self.text else self.text[:500]

    @property
    def content(self) -> Any:
        """None unless the answer is good and JSON."""
        try:
            return msgspec.json.decode(self.text) if self.status == HTTPStatus.OK else None
        except (msgspec.DecodeError, RecursionError):
            return None


def _names(listed: Any) -> list[str]:
    """Names of our own answer of `/v1/models`; none if there is none."""
    data = cast(dict[str, Any], listed).get("data") if isinstance(listed, dict) else None
    entries = cast(list[Any], data) if isinstance(data, list) else []
    return [entry["id"] for entry in entries]


async def _call(membership: Membership, path: str, body: object, limit_s: float = _CALL_S) -> _Answer:
    return await _exchange("POST", f"{membership.proxy_url}{path}", membership.key, body, limit_s)


async def _exchange(
    method: str, url: str, key: str | None, body: object = None, limit_s: float = _CALL_S
) -> _Answer:
    import httpx2  # only servers with a proxy need it

    headers = {"user-agent": f"jan-serve/{__version__}"}
    if key is not None:
        headers["authorization"] = f"Bearer {key}"
    try:
        # Loading the certificates takes longer than a request.
        verify = url.startswith("https:")
        async with httpx2.AsyncClient(
            timeout=limit_s, headers=headers, trust_env=False, verify=verify
        ) as client:
            answer = await client.request(method, url, json=body)
            return _Answer(answer.status_code, answer.text, NODE_HEADER in answer.headers)
    except (httpx2.HTTPError, OSError) as error:
        return _Answer(0, str(error) or type(error).__name__)


logger = logging.getLogger(__name__)

RENEW_S: Final = 30.0
FIRST_RETRY_S: Final = 1.0


def node_url(host: str, port: int, proxy_url: str, role: str) -> str:
    """This server's URL for a proxy. Blocks for a look-up of the proxy's name if the server listens on every address.
    Prefill and decode nodes are called by LMDeploy's routes, which have the fields for moving states."""
    if is_everywhere(host):
        host = address_towards(proxy_url) or host
    elif host == "localhost":
        host = "127.0.0.1"
    path = "" if role == "hybrid" else "/lmdeploy"
    return f"http://[{host}]:{port}{path}" if ":" in host else f"http://{host}:{port}{path}"


def address_towards(url: str) -> str | None:
    """This machine's address towards the URL; None without a way. Blocks for a look-up; sends nothing."""
    parts = urlsplit(url)
    try:
        found = socket.getaddrinfo(parts.hostname, parts.port or 80, type=socket.SOCK_DGRAM)
        for family, kind, protocol, _, address in found:
            with contextlib.suppress(OSError), socket.socket(family, kind, protocol) as probe:
                probe.connect(address)
                return str(probe.getsockname()[0]).partition("%")[0]
    except OSError:
        return None
    return None


class ProxyMember(ServerObserver):
    """Registers while the server listens; withdraws when it drains. inner: an observer that gets the same calls."""

    def __init__(
        self,
        membership: Callable[[], Membership],
        inner: ServerObserver | None = None,
        *,
        renew_s: float = RENEW_S,
        first_retry_s: float = FIRST_RETRY_S,
    ) -> None:
        """membership: called in a thread, each time before the server registers: its address may have changed."""
        self._membership = membership
        self._inner = inner or ServerObserver()
        self._renew_s = renew_s
        self._first_retry_s = first_retry_s
        self._registration = Registration()
        self._current: Membership | None = None
        self._problem: str | None = None
        self._is_first = True
        self._stopped = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def listening(self, stop: Callable[[], None]) -> None:
        self._inner.listening(stop)
        self._task = asyncio.create_task(self._stay_registered(), name="proxy membership")

    def alive(self, idle_s: float) -> None:
        self._inner.alive(idle_s)

    def stopping(self, drain_s: float) -> None:
        self._inner.stopping(drain_s)
        self._stopped.set()

    async def left(self) -> None:
        """Wait until the proxy has the news, or does not answer."""
        if self._task is not None:
            await self._task

    async def _stay_registered(self) -> None:
        retry_s = self._first_retry_s
        while not self._stopped.is_set():
            problem = await self._register()
            self._note(problem)
            if problem is None:
                retry_s = self._first_retry_s
                await self._pause(self._renew_s)
            else:
                await self._pause(retry_s)
                retry_s = min(self._renew_s, retry_s * 2)
        if self._current is not None:
            problem = await self._registration.withdraw(self._current)
            if problem is not None:
                logger.warning("not removed from the proxy: %s", problem)

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopped.wait()

    def _note(self, problem: str | None) -> None:
        """Log what changed: a proxy that is away for a night fills no log."""
        at = self._current.proxy_url if self._current is not None else ""
        if problem is not None and problem != self._problem:
            logger.warning("not registered at the proxy %s: %s", at, problem)
        elif problem is None and self._current is not None and (self._problem is not None or self._is_first):
            logger.info("registered at the proxy %s as %s", at, self._current.url)
            self._is_first = False
        self._problem = problem

    async def _register(self) -> str | None:
        """Why it failed, if it did."""
        try:
            self._current = await asyncio.to_thread(self._membership)
            return await self._registration.renew(self._current)
        except Exception as error:  # the next try may find what was lacking, such as a thread
            logger.debug("cannot register", exc_info=True)
            return f"{type(error).__name__}: {error}"
