"""Connections to MCP servers for the package `mcp`, with limits that its own lack: a server may send without an end."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import shutil
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import anyio
import httpx2
import mcp_types
from mcp.client.stdio import get_default_environment
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage

from jan_serve import __version__
from jan_serve.core.hosts import is_loopback
from jan_serve.mcp.server_file import McpServer
from jan_serve.supervisor.workers.child_process import ChildProcess, StderrReader, StderrTail

if TYPE_CHECKING:
    from mcp.client._transport import TransportStreams

_log = logging.getLogger(__name__)

MAX_MESSAGE_BYTES: Final = 8 << 20
"""One message. A screenshot in base64 has some MB."""
MAX_UNASKED: Final = 10_000
"""Messages, and as many times 4 KiB, that may come since the last message to the server."""
_MAX_UNASKED_BYTES: Final = MAX_UNASKED << 12
_MAX_STREAM_BYTES: Final = 64 << 20
"""One response of HTTP, which may be a stream of messages."""
_END_S: Final = 2.0
"""Time that a server has to end by itself, once its input has ended (the protocol's way)."""
_READ: Final = 64 << 10
_HTTP_TIMEOUTS: Final = httpx2.Timeout(30, read=300)


class Flood(Exception):
    """The server sends more than it may. The message is the end of a sentence that begins with its name."""


class Ending:
    """How a connection ended. reason: the end of a sentence that begins with the server's name; None while it lasts."""

    def __init__(self) -> None:
        self.reason: str | None = None
        self.came = asyncio.Event()

    def set(self, reason: str) -> None:
        self.reason = self.reason or reason
        self.came.set()


@contextlib.asynccontextmanager
async def stdio_transport(server: McpServer, ending: Ending) -> AsyncGenerator[TransportStreams]:
    """Start the server and talk over its pipes. Raises OSError. Its process has ended when the block has."""
    environment = get_default_environment() | dict(server.env)
    program = shutil.which(server.command, path=environment.get("PATH", os.defpath))
    if program is None:
        raise FileNotFoundError(errno.ENOENT, f"there is no program {server.command}")
    folder = Path(server.cwd).expanduser() if server.cwd is not None else None
    process = await ChildProcess.spawn((program, *server.args), environment, folder)
    pipes = _Pipes(process, ending)
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(pipes.read)
            tasks.start_soon(pipes.write)
            try:
                yield pipes.to_session, pipes.from_session
            finally:
                tasks.cancel_scope.cancel()
    finally:
        with anyio.CancelScope(shield=True):
            await pipes.close()


class _Pipes:
    """The messages on the pipes of a server's process."""

    def __init__(self, process: ChildProcess, ending: Ending) -> None:
        self._process = process
        self._ending = ending
        self._tail = StderrTail()
        self._stderr = StderrReader(process, self._tail, _log)
        self._received, self.to_session = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        self.from_session, self._sent = anyio.create_memory_object_stream[SessionMessage](0)
        self._unasked = self._unasked_bytes = 0

    async def read(self) -> None:
        """Pass on what the server sends until it ends, or sends too much."""
        async with self._received:
            try:
                async for line in self._lines():
                    with contextlib.suppress(ValueError):  # servers print other things too
                        message = mcp_types.jsonrpc_message_adapter.validate_json(line, by_name=False)
                        # The session would check and drop each notification, which takes longer than its sending.
                        if not isinstance(message, mcp_types.JSONRPCNotification):
                            await self._received.send(SessionMessage(message))
            except Flood as flood:
                self._ending.set(str(flood))
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                pass  # the session has ended
            else:
                self._ending.set(await self._last_words())

    async def write(self) -> None:
        """Pass on what the session sends."""
        with contextlib.suppress(ConnectionError):  # it has ended, which `read` sees
            async for sent in self._sent:
                self._unasked = self._unasked_bytes = 0
                text = sent.message.model_dump_json(by_alias=True, exclude_unset=True)
                self._process.stdin.write(text.encode() + b"\n")
                await self._process.stdin.drain()

    async def _lines(self) -> AsyncIterator[bytes]:
        """Raises Flood."""
        parts: list[bytes] = []
        size = 0
        while data := await self._process.stdout.read(_READ):
            *whole, rest = data.split(b"\n")
            for line in whole:
                yield b"".join((*parts, line))
                parts.clear()
                size = 0
            parts.append(rest)
            size += len(rest)
            self._unasked += len(whole)
            self._unasked_bytes += len(data)
            if size > MAX_MESSAGE_BYTES:
                raise Flood(f"sent a message of more than {MAX_MESSAGE_BYTES} bytes")
            if self._unasked > MAX_UNASKED or self._unasked_bytes > _MAX_UNASKED_BYTES:
                raise Flood(f"sent more than {MAX_UNASKED} messages or {_MAX_UNASKED_BYTES} bytes unasked")

    async def _last_words(self) -> str:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._process.exited.wait(), _END_S)
        await self._stderr.close()
        if self._process.returncode is None:
            return "closed its output"
        words = f": {self._tail.lines[-1]}" if self._tail.lines else ""
        return f"ended ({self._process.status}){words}"

    async def close(self) -> None:
        for stream in (self._received, self.to_session, self.from_session, self._sent):
            stream.close()
        self._process.stdin.close()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._process.exited.wait(), _END_S)
        self._process.kill()
        await self._process.exited.wait()
        await self._stderr.close()
        self._process.close()


@contextlib.asynccontextmanager
async def http_transport(server: McpServer) -> AsyncGenerator[TransportStreams]:
    """Talk by streamable HTTP."""
    async with (
        httpx2.AsyncClient(
            headers={
                "User-Agent": f"jan-serve/{__version__}",
                "Accept-Encoding": "identity",
                **server.headers,
            },
            timeout=_HTTP_TIMEOUTS,
            # A proxy from the environment does not apply to this machine.
            trust_env=not is_loopback(urlsplit(server.url).hostname or ""),
            event_hooks={"response": [_limit]},
        ) as client,
        streamable_http_client(
            server.url, http_client=client, max_sse_event_size=MAX_MESSAGE_BYTES
        ) as streams,
    ):
        yield streams


async def _limit(response: httpx2.Response) -> None:
    """Raises Flood for a compressed body, which may be small and yet too large."""
    if response.headers.get("content-encoding", "identity") != "identity":
        raise Flood("compresses its answers unasked")
    is_stream = response.headers.get("content-type", "").startswith("text/event-stream")
    response.stream = _Limited(response.stream, _MAX_STREAM_BYTES if is_stream else MAX_MESSAGE_BYTES)


class _Limited(httpx2.AsyncByteStream):
    def __init__(self, stream: Any, most: int) -> None:
        self._stream = stream
        self._left = most

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self._stream:
            self._left -= len(piece)
            if self._left < 0:
                raise Flood("sent an answer that is too large")
            yield piece

    async def aclose(self) -> None:
        await self._stream.aclose()
