"""Reads the file of MCP servers, in the form of Claude Desktop: `{"mcpServers": {NAME: {"command": …}}}`.

Only this file names servers: a command in it runs as this user.
"""

from __future__ import annotations

import json
import re
import stat
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, cast

import msgspec

from jan_serve.core.nesting import is_deeper
from jan_serve.errors import SettingsError
from jan_serve.store.files import TooLarge, read_limited

_MAX_BYTES: Final = 1 << 20
_MAX_DEPTH: Final = 20
_MAX_SERVERS: Final = 64
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._@/-]{0,63}\Z")
_HTTP: Final = ("http", "streamable-http", "streamableHttp")


class McpServer(msgspec.Struct, frozen=True):
    """An entry of the file. Either `command`, for a child process that speaks on its pipes, or `url` is not empty.

    env: added to a few variables of this process. The other names of an entry belong to other programs.
    """

    name: str = ""
    command: str = ""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = msgspec.field(default_factory=dict[str, str])
    cwd: str | None = None
    url: str = ""
    headers: Mapping[str, str] = msgspec.field(default_factory=dict[str, str])
    type: str | None = None
    disabled: bool = False


def read_servers(path: Path) -> tuple[McpServer, ...]:
    """The servers of the file, without those that it disables; none if there is no file. Raises SettingsError."""
    try:
        raw = read_limited(path, _MAX_BYTES)
        if sys.platform != "win32" and stat.S_IMODE(path.stat().st_mode) & stat.S_IWOTH:
            raise SettingsError(
                f"{path}: every user of this machine may write it, and its commands run as you"
            )
        content = json.loads(raw.decode("utf-8"))
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise SettingsError(f"cannot read {path}: {error.strerror}") from None
    except TooLarge as error:
        raise SettingsError(f"{path} {error}") from None
    except UnicodeDecodeError as error:
        raise SettingsError(f"{path}: not UTF-8 at byte {error.start}") from None
    except (ValueError, RecursionError) as error:
        raise SettingsError(f"{path}: not JSON: {error}") from None
    entries = cast(dict[str, Any], content).get("mcpServers") if isinstance(content, dict) else None
    if not isinstance(entries, dict):
        raise SettingsError(f"{path}: must be an object whose mcpServers is an object of servers by name")
    if is_deeper(entries, _MAX_DEPTH):
        raise SettingsError(f"{path}: nests deeper than {_MAX_DEPTH} levels")
    named = cast(dict[str, Any], entries)
    if len(named) > _MAX_SERVERS:
        raise SettingsError(f"{path}: {len(named)} servers; {_MAX_SERVERS} at most")
    servers = [_server(f"{path}: mcpServers.{name[:80]}", name, entry) for name, entry in named.items()]
    return tuple(server for server in servers if not server.disabled)


def _server(place: str, name: str, entry: Any) -> McpServer:
    """Raises SettingsError, which begins with the place."""
    if not _NAME.match(name):
        raise SettingsError(f"{place}: a name has 64 letters, digits, blanks or ._@/- at most")
    try:
        server = msgspec.structs.replace(msgspec.convert(entry, McpServer), name=name)
    except msgspec.ValidationError as error:
        raise SettingsError(f"{place}: {error}") from None
    if bool(server.command) == bool(server.url):
        raise SettingsError(f"{place}: needs either a command or a url")
    if server.url and not server.url.startswith(("http://", "https://")):
        raise SettingsError(f"{place}.url: must begin with http:// or https://")
    if server.type not in (None, *(_HTTP if server.url else ("stdio",))):
        known = "http (streamable HTTP)" if server.url else "stdio"
        raise SettingsError(f"{place}.type: {server.type[:40]!r} is not supported, only {known}")
    texts = (server.command, *server.args, *server.env, *server.env.values())
    if any("\0" in text for text in texts) or any(not key or "=" in key for key in server.env):
        raise SettingsError(f"{place}: a text has a NUL, or a variable's name is empty or has `=`")
    return server
