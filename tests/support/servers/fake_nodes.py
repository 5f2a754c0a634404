"""Servers behind a proxy that answer any bytes at any pace, and a proxy in front of them, on one event loop."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import ssl
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import httpx

from jan_serve.fleet.node import NodeState
from jan_serve.proxy.app import Proxy
from jan_serve.proxy.server import ProxyServer, proxy_config
from jan_serve.proxy.settings import ProxySettings


@dataclass
class Received:
    """A request as it came. headers: by lower-case name, the last one wins."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


Answer = Callable[[Received, asyncio.StreamWriter], Awaitable[None]]


def reply(content: object, status: int = 200, **headers: str) -> bytes:
    """A whole answer with a JSON body, or the given bytes."""
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    fields = {"content-type": "application/json", "content-length": str(len(body)), **headers}
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in fields.items())
    return f"HTTP/1.1 {status} Said\r\n{lines}\r\n".encode("latin-1") + body


def sending(*parts: bytes, close: bool = False) -> Answer:
    """Answer with these bytes, whatever was asked."""

    async def answer(request: Received, writer: asyncio.StreamWriter) -> None:
        for part in parts:
            writer.write(part)
            await writer.drain()
        if close:
            writer.close()

    return answer


EVENT_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


@dataclass
class FakeNode:
    """answer: for what is not `/health`, `/v1/models` or in `routes`; by default a reply that names the node.

    left: set when the other side closes the connection before the answer is complete.
    """

    name: str = "node"
    models: tuple[str, ...] = ("m1",)
    health: tuple[int, Any] = (200, {"status": "ok"})
    answer: Answer | None = None
    routes: dict[str, Answer] = field(default_factory=dict[str, Answer])
    calls: list[Received] = field(default_factory=list[Received])
    left: asyncio.Event = field(default_factory=asyncio.Event)
    port: int = 0
    tls: ssl.SSLContext | None = None

    def __post_init__(self) -> None:
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self.connections = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def generations(self) -> list[Received]:
        """What was asked besides health and models."""
        return [call for call in self.calls if call.path not in ("/health", "/v1/models")]

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, ssl=self.tls)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Die, and wait until the other side can know."""
        self.kill()
        await asyncio.sleep(0)

    def kill(self) -> None:
        """Die: connections are reset, and the port refuses new ones."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for writer in list(self._writers):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        self.connections += 1
        try:
            while not writer.is_closing():
                request = await _read(reader)
                if request is None:
                    break
                self.calls.append(request)
                watching = asyncio.create_task(self._watch(reader))
                try:
                    await self._answer(request, writer)
                    await writer.drain()
                finally:
                    watching.cancel()
                    await asyncio.gather(watching, return_exceptions=True)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _watch(self, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(ConnectionError):
            await reader.read(1)
        self.left.set()

    async def _answer(self, request: Received, writer: asyncio.StreamWriter) -> None:
        path = request.path.partition("?")[0]
        if path in self.routes:
            await self.routes[path](request, writer)
        elif path == "/health":
            writer.write(reply(self.health[1], self.health[0]))
        elif path == "/v1/models":
            writer.write(reply({"object": "list", "data": [{"id": name} for name in self.models]}))
        elif self.answer is not None:
            await self.answer(request, writer)
        else:
            writer.write(reply({"node": self.name, "usage": {"prompt_tokens": 10}}))


async def _read(reader: asyncio.StreamReader) -> Received | None:
    head = await reader.readuntil(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
    method, path, _ = first.split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Received(method, path, headers, body)


@dataclass
class RunningProxy:
    """url: of the proxy. client: for its users. stop: begins its end."""

    url: str
    proxy: Proxy
    client: httpx.AsyncClient
    stop: Callable[[], None]

    async def add(self, *nodes: FakeNode, **status: Any) -> None:
        for node in nodes:
            body = {"url": node.url, "status": status or None}
            key = self.proxy.settings.node_key
            headers = {"x-api-key": key} if key is not None else {}
            answer = await self.client.post("/nodes/add", json=body, headers=headers)
            assert answer.status_code == 200, answer.text

    async def chat(self, text: str = "Hi", **fields: Any) -> httpx.Response:
        body: dict[str, Any] = {"model": "m1", "messages": [{"role": "user", "content": text}], **fields}
        return await self.client.post("/v1/chat/completions", json=body)

    async def until_state(self, node: FakeNode, *states: NodeState) -> None:
        """Probe the node until it is in one of these states."""
        found = self.proxy.fleet.find(node.url)
        assert found is not None
        async with asyncio.timeout(60):
            while found.state not in states:
                await self.proxy.probes.probe(found)
                await asyncio.sleep(0.001)


@contextlib.asynccontextmanager
async def running_proxy(
    *nodes: FakeNode, clock: Callable[[], float] = time.monotonic, **settings: Any
) -> AsyncGenerator[RunningProxy]:
    """A proxy with these nodes. It probes rarely: tests call `probe`."""
    given: dict[str, Any] = {"health_interval_s": 3600.0, "drain_timeout_s": 0.0, **settings}
    proxy = Proxy(ProxySettings(**given), clock)
    proxy.open()
    server = ProxyServer(proxy_config(proxy.app), proxy.lifecycle, given["drain_timeout_s"])
    with socket.create_server(("127.0.0.1", 0)) as sock:
        serving = asyncio.create_task(server.serve(sockets=[sock]))
        await server.listening.wait()
        url = f"http://127.0.0.1:{sock.getsockname()[1]}"
        try:
            # Without certificates, which take 30 ms to load.
            async with httpx.AsyncClient(base_url=url, timeout=30, trust_env=False, verify=False) as client:
                running = RunningProxy(url, proxy, client, server.stop)
                await running.add(*nodes)
                yield running
        finally:
            server.stop()
            await serving
            await proxy.close()


@contextlib.asynccontextmanager
async def fake_nodes(*nodes: FakeNode) -> AsyncGenerator[tuple[FakeNode, ...]]:
    """These nodes, listening."""
    try:
        for node in nodes:
            await node.start()
        yield nodes
    finally:
        for node in nodes:
            await node.stop()
