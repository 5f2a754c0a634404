"""Sessions with MCP servers: opened together, one task each, and opened again at the next call after an end."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import logging
import os
import shutil
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import urlsplit

import msgspec

from jan_serve import __version__
from jan_serve.core.hosts import is_loopback
from jan_serve.errors import SettingsError
from jan_serve.mcp.server_file import McpServer
from jan_serve.mcp.tools import MAX_TOOLS, LeftOut, McpTool, ToolResult, checked_tools, read_result
from jan_serve.supervisor.workers.child_process import ChildProcess, StderrReader, StderrTail

try:
    import anyio
    import httpx2
    import mcp_types
    from mcp import ClientSession, MCPError
    from mcp.client.stdio import get_default_environment
    from mcp.client.streamable_http import streamable_http_client
    from mcp.shared.dispatcher import CallOptions
    from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
    from mcp.shared.message import SessionMessage
    from mcp.types import Implementation
except ModuleNotFoundError as error:
    raise SettingsError(
        f"MCP servers need a package that is not installed ({error.name}): pip install 'jan-serve[mcp]'"
    ) from None

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


# It logs what servers do wrong, with tracebacks; their ends are said here.
logging.getLogger("mcp").setLevel(logging.CRITICAL)

_MAX_PAGES: Final = 20
_MAX_REASON: Final = 400


class McpLimits(msgspec.Struct, frozen=True):
    """start_s: to start a server and list its tools; the first start may download its program. call_s: for a call."""

    start_s: float = 60.0
    call_s: float = 300.0


class McpSession:
    """A server, the tools that it listed last, and its connection."""

    def __init__(self, server: McpServer, limits: McpLimits) -> None:
        self.name = server.name
        self.tools: tuple[McpTool, ...] = ()
        self.left_out: tuple[LeftOut, ...] = ()
        self._server = server
        self._limits = limits
        self._task: asyncio.Task[None] | None = None
        self._starting = asyncio.Lock()
        self._opened = asyncio.Event()
        self._ending = Ending()
        self._dispatcher: JSONRPCDispatcher[Any] | None = None
        self._options: CallOptions = {}

    @property
    def error(self) -> str | None:
        """Why it is not connected, as the end of a sentence that begins with its name."""
        return self._ending.reason

    async def open(self) -> None:
        """Connect and list the tools, unless connected. Blocks for `start_s` at most; `error` says how it failed."""
        async with self._starting:
            if self._task is not None and self._ending.came.is_set():
                await asyncio.wait({self._task})
            if self._task is None or self._task.done():
                self._opened, self._ending = asyncio.Event(), Ending()
                self._task = asyncio.create_task(self._run(), name=f"MCP server {self.name}")
        await self._opened.wait()

    async def call(self, tool: McpTool, arguments: Mapping[str, Any]) -> ToolResult:
        """Call a tool. Raises nothing but its cancellation, of which the server is told."""
        await self.open()
        if self._dispatcher is None:
            return self._failed("is not there")
        sent = {"name": tool.tool, "arguments": dict(arguments)}
        try:
            with anyio.fail_after(self._limits.call_s):
                raw = await self._dispatcher.send_raw_request("tools/call", sent, self._options)
        except TimeoutError:
            return ToolResult(f"The tool gave no result within {self._limits.call_s:g} s.", failed=True)
        except MCPError as error:
            return self._failed(f"says: {error.error.message[:_MAX_REASON]}")
        return read_result(raw)

    def _failed(self, otherwise: str) -> ToolResult:
        return ToolResult(f"The MCP server {self.name} {self.error or otherwise}.", failed=True)

    async def close(self) -> None:
        """End the connection, and the server's process."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    async def _run(self) -> None:
        """Hold the connection until it ends or the task is cancelled."""
        ending, start_s = self._ending, self._limits.start_s
        try:
            async with contextlib.AsyncExitStack() as stack:
                try:
                    async with asyncio.timeout(start_s):
                        await self._connect(stack, ending)
                except TimeoutError:
                    ending.set(f"did not start within {start_s:g} s")
                self._opened.set()
                await ending.came.wait()
        except Exception as error:  # a server may make the package `mcp` fail in any way
            ending.set(f"failed: {_reason(error)}")
        finally:
            self._dispatcher = None
            self._opened.set()

    async def _connect(self, stack: contextlib.AsyncExitStack, ending: Ending) -> None:
        server = self._server
        transport = http_transport(server) if server.url else stdio_transport(server, ending)
        read, write = await stack.enter_async_context(transport)
        dispatcher: JSONRPCDispatcher[Any] = JSONRPCDispatcher(read, write)
        info = Implementation(name="jan-serve", version=__version__)
        session = await stack.enter_async_context(ClientSession(dispatcher=dispatcher, client_info=info))
        await session.initialize()
        self._options = {"headers": {"MCP-Protocol-Version": str(session.protocol_version)}}
        # The lists of the package are all or nothing: one wrong tool would cost the others.
        listed = await _listed(dispatcher, self._options)
        self.tools, self.left_out = await asyncio.to_thread(checked_tools, self.name, listed)
        self._dispatcher = dispatcher


async def _listed(dispatcher: JSONRPCDispatcher[Any], options: CallOptions) -> list[Any]:
    """All pages of the list of tools, within limits."""
    entries: list[Any] = []
    cursor: object = None
    for _ in range(_MAX_PAGES):
        page = await dispatcher.send_raw_request(
            "tools/list", {"cursor": cursor} if isinstance(cursor, str) else None, options
        )
        tools = page.get("tools")
        if not isinstance(tools, list):
            raise Flood("its list of tools is not a list")
        entries += cast(list[Any], tools)
        cursor = page.get("nextCursor")
        if not cursor or len(entries) > 2 * MAX_TOOLS:
            break
    return entries[: 2 * MAX_TOOLS]


def _reason(error: Exception) -> str:
    """The innermost message, in one line."""
    while isinstance(error, ExceptionGroup):
        error = cast("ExceptionGroup[Exception]", error).exceptions[0]
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return " ".join((str(error) or type(error).__name__).split())[:_MAX_REASON]


class McpServers:
    """The servers of a file, their sessions and the calls of their tools."""

    def __init__(self, servers: Iterable[McpServer], limits: McpLimits | None = None) -> None:
        self.sessions: Sequence[McpSession] = [McpSession(each, limits or McpLimits()) for each in servers]

    @property
    def tools(self) -> dict[str, McpTool]:
        """The tools of all servers, by their names in requests; of two with one name the first."""
        return {tool.name: tool for session in reversed(self.sessions) for tool in session.tools}

    async def open(self) -> None:
        """Connect to all servers that are not connected. Raises nothing: sessions have their errors."""
        await asyncio.gather(*(session.open() for session in self.sessions))

    async def call(self, name: str, arguments: str) -> ToolResult:
        """Call a tool by its name in requests, with arguments in JSON as the model wrote them."""
        tool = self.tools.get(name)
        if tool is None:
            return ToolResult(f"There is no tool {name[:80]}.", failed=True)
        try:
            parsed = json.loads(arguments or "{}")
        except (ValueError, RecursionError):
            parsed = None
        if not isinstance(parsed, dict):
            return ToolResult("The arguments are not a JSON object.", failed=True)
        session = next(each for each in self.sessions if each.name == tool.server)
        return await session.call(tool, cast(dict[str, Any], parsed))

    async def close(self) -> None:
        """End all connections and processes of servers."""
        await asyncio.gather(*(session.close() for session in self.sessions))
