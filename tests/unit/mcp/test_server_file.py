"""The file of MCP servers, in the form of Claude Desktop."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from jan_serve.errors import SettingsError
from jan_serve.mcp.server_file import McpServer, read_servers

FILES = {"command": "npx", "args": ["-y", "server-files", "/tmp"], "env": {"A": "1"}}


def written(folder: Path, content: Any) -> Path:
    file = folder / "mcp.json"
    file.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return file


def test_servers_as_other_programs_write_them(tmp_path: Path) -> None:
    entries = {
        "files": {**FILES, "autoApprove": ["x"]},
        "web search": {
            "type": "http",
            "url": "https://example.org/mcp",
            "headers": {"Authorization": "Bearer t"},
        },
        "off": {"command": "x", "disabled": True},
    }
    found = read_servers(written(tmp_path, {"mcpServers": entries, "globalShortcut": ""}))
    assert found == (
        McpServer("files", "npx", ("-y", "server-files", "/tmp"), {"A": "1"}),
        McpServer(
            "web search", url="https://example.org/mcp", headers={"Authorization": "Bearer t"}, type="http"
        ),
    )


def test_no_file_is_no_servers(tmp_path: Path) -> None:
    assert read_servers(tmp_path / "mcp.json") == ()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "not JSON"),
        (b"\xff", "not UTF-8 at byte 0"),
        (b"[" * 100_000, "not JSON"),
        (b" " * ((1 << 20) + 1), "larger than 1048576 bytes"),
        ([], "must be an object whose mcpServers"),
        ({"mcpServers": []}, "must be an object whose mcpServers"),
        ({"mcpServers": {"a": {"x": json.loads("[" * 30 + "]" * 30)}}}, "deeper than 20 levels"),
        ({"mcpServers": {str(number): FILES for number in range(65)}}, "65 servers; 64 at most"),
        ({"mcpServers": {"a": 5}}, "mcpServers.a: Expected `object`, got `int`"),
        ({"mcpServers": {"a": {}}}, "mcpServers.a: needs either a command or a url"),
        ({"mcpServers": {"a": {**FILES, "url": "http://x"}}}, "mcpServers.a: needs either a command or a url"),
        ({"mcpServers": {"a": {"command": "x", "args": [5]}}}, r"got `int` - at `\$.args"),
        ({"mcpServers": {"a": {"command": "x", "env": {"A": 5}}}}, "mcpServers.a: Expected `str`, got `int`"),
        ({"mcpServers": {"a": {"command": "x", "env": {"A=B": "5"}}}}, "mcpServers.a: a text has a NUL"),
        ({"mcpServers": {"a": {"command": "x\0"}}}, "mcpServers.a: a text has a NUL"),
        ({"mcpServers": {"a": {"url": "file:///etc/passwd"}}}, "mcpServers.a.url: must begin with http"),
        ({"mcpServers": {"a": {"url": "http://x", "type": "sse"}}}, "mcpServers.a.type: 'sse' is not supported"),
        ({"mcpServers": {"a": {"command": "x", "type": "http"}}}, "mcpServers.a.type: 'http' is not supported"),
        ({"mcpServers": {"\n": FILES}}, "a name has 64 letters"),
    ],
)  # fmt: skip
def test_wrong_files_name_the_place(tmp_path: Path, content: Any, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        read_servers(written(tmp_path, content))


@pytest.mark.skipif(os.name != "posix", reason="needs modes of files")
def test_a_file_that_everyone_may_write_is_refused(tmp_path: Path) -> None:
    file = written(tmp_path, {"mcpServers": {"a": FILES}})
    file.chmod(0o666)
    with pytest.raises(SettingsError, match="every user of this machine may write it"):
        read_servers(file)
