"""Sessions with MCP servers: opened together, one task each, and opened again at the next call after an end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, cast

import msgspec

from jan_serve import __version__
from jan_serve.errors import SettingsError
from jan_serve.mcp.results import ToolResult, read_result
from jan_serve.mcp.server_file import McpServer
from jan_serve.mcp.tools import MAX_TOOLS, LeftOut, McpTool, checked_tools

try:
    import anyio
    from mcp import ClientSession, MCPError
    from mcp.shared.dispatcher import CallOptions
    from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
    from mcp.types import Implementation

    from jan_serve.mcp.transports import Ending, Flood, http_transport, stdio_transport
except ModuleNotFoundError as error:
    raise SettingsError(
        f"MCP servers need a package that is not installed ({error.name}): pip install 'jan-serve[mcp]'"
    ) from None

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
