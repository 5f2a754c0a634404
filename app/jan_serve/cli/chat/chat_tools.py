"""Tools of MCP servers in a chat on the terminal: each call is shown, and made once the user allows it.
The sessions live on the loop of a thread, and end with the chat."""

from __future__ import annotations

import base64
import contextlib
import sys
import tempfile
from collections.abc import Collection, Coroutine, Generator
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import typer

from jan_serve.cli.errors import WrongUse
from jan_serve.cli.input import question_keys
from jan_serve.cli.output import output, shortened
from jan_serve.mcp.results import ToolResult
from jan_serve.mcp.server_file import read_servers

if TYPE_CHECKING:
    from anyio.from_thread import BlockingPortal

    from jan_serve.mcp.sessions import McpServers, McpSession

T = TypeVar("T")

ALL: Final = "all"
"""Allows every tool."""
DECLINED: Final = "The user did not allow this call."
_SHOWN_LINES: Final = 10
_SHOWN_WIDTH: Final = 500


class ChatTools:
    """allowed: names of tools that are called without a question, or `all`."""

    def __init__(self, portal: BlockingPortal, servers: McpServers, allowed: Collection[str]) -> None:
        self.allowed = set(allowed)
        self._portal = portal
        self._servers = servers

    def open(self) -> None:
        """Connect to the servers that are not connected, and say what there is. Blocks."""
        self._wait(self._servers.open())
        for session in self._servers.sessions:
            _say(session)

    def functions(self) -> list[dict[str, Any]]:
        """`tools` of a chat request."""
        return [tool.function() for tool in self._servers.tools.values()]

    def list(self) -> None:
        """Print each server with its tools."""
        self.open()
        for tool in self._servers.tools.values():
            allowed = " (allowed)" if self._is_allowed(tool.name) else ""
            output.note(shortened(f"  {tool.name}{allowed}: {tool.description}", _SHOWN_WIDTH))

    def call(self, name: str, arguments: str) -> ToolResult:
        """Show the call, ask unless it is allowed, and show the result. Blocks; Ctrl-C cancels the call."""
        output.headline(f"call {name} {shortened(arguments, _SHOWN_WIDTH)}")
        if not self._is_allowed(name) and not self._asks(name):
            return ToolResult(DECLINED, failed=True)
        result = self._wait(self._servers.call(name, arguments))
        lines = result.text.splitlines()
        for line in lines[:_SHOWN_LINES]:
            output.note(f"  {shortened(line, _SHOWN_WIDTH)}")
        if len(lines) > _SHOWN_LINES:
            output.note(f"  … {len(lines) - _SHOWN_LINES} more lines")
        for picture in result.pictures:
            output.note(f"  picture: {_saved(picture)}")
        return result

    def _is_allowed(self, name: str) -> bool:
        return not self.allowed.isdisjoint((ALL, name))

    def _asks(self, name: str) -> bool:
        """Whether the user allows it."""
        if not (sys.stdin.isatty() and output.notes_on_terminal):
            output.note(f"  not called: there is no terminal to ask, and no --allow-tool {name}")
            return False
        try:
            with question_keys():
                typed = typer.prompt("  Call it? yes, no, or always in this chat", default="yes", err=True)
        except typer.Abort:
            raise KeyboardInterrupt from None
        answer = str(typed).strip().lower()[:1]
        if answer == "a":
            self.allowed.add(name)
        return answer in ("a", "y")

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Its result. Ctrl-C cancels it."""

        async def run() -> T:
            return await work

        future: Future[T] = self._portal.start_task_soon(run)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise


@contextlib.contextmanager
def chat_tools(file: Path | None, allowed: Collection[str]) -> Generator[ChatTools]:
    """Start the servers of the file, and end them with the block. Raises CommandError, SettingsError."""
    servers = read_servers(file) if file is not None else ()
    if not servers:
        named = f"{file} names no MCP servers" if file is not None else "mcp_file is none"
        hint = 'The file has {"mcpServers": {"NAME": {"command": "…", "args": ["…"]}}}, as Claude Desktop writes it.'
        raise WrongUse(named, hint)
    from anyio.from_thread import start_blocking_portal

    from jan_serve.mcp.sessions import McpServers  # imports a package that may not be installed

    with start_blocking_portal() as portal:
        sessions = McpServers(servers)
        try:
            tools = ChatTools(portal, sessions, allowed)
            tools.open()
            yield tools
        finally:
            portal.call(sessions.close)


def _say(session: McpSession) -> None:
    if session.error is not None:
        output.warning(f"the MCP server {session.name} {session.error}")
        return
    output.note(f"MCP server {session.name}: {len(session.tools)} tools")
    for each in session.left_out:
        output.warning(f"the tool {each.tool} of {session.name} is left out: it {each.reason}")


def _saved(picture: str) -> Path:
    """A data URL as a file, which stays for the user."""
    head, _, data = picture.partition(",")
    kind = head.removeprefix("data:image/").partition(";")[0]
    with tempfile.NamedTemporaryFile(prefix="jan-serve-", suffix=f".{kind}", delete=False) as file:
        file.write(base64.b64decode(data))
    return Path(file.name)
