"""The HTTP application over fake models: called in process, or served on a real socket."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import tempfile
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from jan_serve.api.app import create_app
from jan_serve.api.server import ModelServer
from jan_serve.config import Settings
from jan_serve.dialects.options import ServerSettings
from jan_serve.dialects.ports import ServedModels
from jan_serve.dialects.registry import DIALECTS, DialectFactory
from jan_serve.http.connection import HttpConnection
from jan_serve.http.draining_server import server_config
from jan_serve.wiring.parts import ServerParts
from tests.support.engine.fake_client import FakeModels
from tests.support.helpers.compiling import translate_inline
from tests.support.helpers.decoding import InlineDecoder
from tests.support.helpers.rendering import render_inline

_FOLDERS = tempfile.TemporaryDirectory(prefix="jan-serve-test-")


def make_settings(**changes: Any) -> Settings:
    """Settings of a server with a data folder of its own: a journal serves one server at a time."""
    values: dict[str, Any] = {"model": "fake", "data_dir": Path(tempfile.mkdtemp(dir=_FOLDERS.name))}
    return ServerSettings(**(values | changes))


class _Replaceable:
    """Models that are looked up at each call."""

    def __init__(self, models: ServedModels) -> None:
        self.current = models

    def __getattr__(self, name: str) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            return getattr(self.current, name)(*args, **kwargs)

        return call


_FREE: dict[object, list[tuple[FastAPI, _Replaceable]]] = {}
"""Idle applications by their arguments: making one takes longer than most tests."""


@contextlib.asynccontextmanager
async def http_client(
    models: ServedModels | None = None,
    *,
    headers: dict[str, str] | None = None,
    dialects: tuple[DialectFactory, ...] = DIALECTS,
    fresh: bool = False,
    **settings: Any,
) -> AsyncGenerator[httpx.AsyncClient]:
    """A client that calls the application without a socket. dialects: fewer are made faster.

    fresh: an application that nobody has used, where counters or stored answers of another test would matter.
    """
    key = (dialects, tuple(sorted(settings.items())))
    free = [] if fresh else _FREE.setdefault(key, [])
    if free:
        app, replaceable = free.pop()
    else:
        replaceable = _Replaceable(FakeModels())
        behind: Any = replaceable
        app = create_app(
            make_settings(**settings),
            behind,
            render_inline,
            translate_inline,
            decoder=InlineDecoder().decode,
            dialects=dialects,
        )
    replaceable.current = models or FakeModels()
    transport = httpx.ASGITransport(app, raise_app_exceptions=True)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=headers) as client:
        yield client
    free.append((app, replaceable))


@pytest.fixture
async def client() -> AsyncGenerator[httpx.AsyncClient]:
    """A client of an application whose models are fake."""
    async with http_client() as client:
        yield client


def refused(response: httpx.Response, status: int, code: str) -> None:
    """Asserts an error of the default dialect."""
    assert response.status_code == status
    assert response.json()["error"]["code"] == code
    assert response.headers["content-type"] == "application/json"


class NoShutdown:
    """Models without workers."""

    def __init__(self, models: ServedModels) -> None:
        self._models = models

    def __getattr__(self, name: str) -> Any:
        return getattr(self._models, name)

    async def shutdown(self, drain_s: float) -> None:
        """Nothing to do."""


@contextlib.asynccontextmanager
async def live_server(
    models: ServedModels | None = None, *, connection: type[HttpConnection] = HttpConnection, **settings: Any
) -> AsyncGenerator[int]:
    """A server on this event loop; the value is its port. It ends with the block."""
    served: Any = NoShutdown(models or FakeModels())
    app = create_app(make_settings(**settings), served, render_inline, translate_inline)
    async with serve_app(app, served, connection=connection) as port:
        yield port


class NoHelpers:
    """Stands in for a pool of helper processes that no request uses."""

    async def start(self) -> None:
        pass

    rest = close = start


@contextlib.asynccontextmanager
async def serve_app(
    app: FastAPI, models: Any, *, connection: type[HttpConnection] = HttpConnection
) -> AsyncGenerator[int]:
    """As live_server, for the caller's application over `models`."""
    config = server_config(app, connection=connection)
    helpers: Any = NoHelpers()
    parts = ServerParts(make_settings(), models, helpers, helpers, helpers)
    server = ModelServer(config, app.state.parts, parts, drain_s=0.0)
    with socket.create_server(("127.0.0.1", 0)) as sock:
        serving = asyncio.create_task(server.serve(sockets=[sock]))
        await server.listening.wait()
        try:
            yield sock.getsockname()[1]
        finally:
            server.stop()
            await serving


class RawClient:
    """A TCP client that sends and reads raw bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def until(self, mark: bytes, limit_s: float = 30.0) -> bytes:
        """Read up to and with the mark."""
        async with asyncio.timeout(limit_s):
            return await self.reader.readuntil(mark)

    async def rest(self, limit_s: float = 30.0) -> bytes:
        """Read until the server closes."""
        async with asyncio.timeout(limit_s):
            return await self.reader.read()

    def half_close(self) -> None:
        """Send FIN; keep reading."""
        self.writer.write_eof()

    def close(self) -> None:
        self.writer.close()


@contextlib.asynccontextmanager
async def raw_client(port: int) -> AsyncGenerator[RawClient]:
    """A connection to the port."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield RawClient(reader, writer)
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


def raw_post(path: str, body: bytes, *headers: str) -> bytes:
    """A POST request as bytes."""
    lines = [
        f"POST {path} HTTP/1.1",
        "Host: localhost",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        *headers,
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body
