"""Sessions with real MCP servers: good ones, and ones that hang, flood, lie or die."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import psutil
import pytest

from jan_serve.mcp.results import MAX_TEXT
from jan_serve.mcp.server_file import McpServer, read_servers
from jan_serve.mcp.sessions import McpLimits, McpServers
from jan_serve.mcp.tools import MAX_TOOLS
from tests.support.servers.mcp_server import LIES, NAMES, entry, http_server

pytestmark = pytest.mark.anyio


def servers_of(folder: Path, **entries: Any) -> tuple[McpServer, ...]:
    file = folder / "mcp.json"
    file.write_text(json.dumps({"mcpServers": entries}))
    return read_servers(file)


@contextlib.asynccontextmanager
async def opened(folder: Path, limits: McpLimits | None = None, **entries: Any) -> AsyncGenerator[McpServers]:
    servers = McpServers(servers_of(folder, **entries), limits)
    try:
        await servers.open()
        yield servers
    finally:
        await servers.close()


async def called(servers: McpServers, tool: str, **arguments: Any) -> tuple[str, bool]:
    result = await servers.call(f"test__{tool}", json.dumps(arguments))
    return result.text, result.failed


@pytest.mark.parametrize("habit", ["", "pages", "prints"])
async def test_the_tools_of_a_server_are_listed_and_called(tmp_path: Path, habit: str) -> None:
    async with opened(tmp_path, test=entry(habit)) as servers:
        assert [session.error for session in servers.sessions] == [None]
        assert list(servers.tools) == [f"test__{name}" for name in ("add", *NAMES)]
        assert servers.tools["test__add"].function()["function"]["parameters"]["properties"].keys() == {
            "a",
            "b",
        }
        assert await called(servers, "add", a=2, b=3) == ("5", False)
        assert await called(servers, "fail") == ("no such file", True)
        assert await called(servers, "refuse") == ("The MCP server test says: not today.", True)
        assert await called(servers, "structured") == ('{"sum": 3}', False)
        assert await called(servers, "gone") == ("There is no tool test__gone.", True)
        for wrong in ("[1]", "{", "5"):
            assert (await servers.call("test__add", wrong)).text == "The arguments are not a JSON object."


async def test_tools_by_http(tmp_path: Path) -> None:
    with http_server() as url:
        async with opened(tmp_path, test={"url": url}) as servers:
            assert await called(servers, "add", a=2, b=3) == ("5", False)
            assert await called(servers, "refuse") == ("The MCP server test says: not today.", True)


async def test_results_are_cut_and_pictures_have_the_type_of_their_bytes(tmp_path: Path) -> None:
    async with opened(tmp_path, test=entry()) as servers:
        text, _ = await called(servers, "long")
        assert text.startswith("x" * MAX_TEXT + "\n[cut: ")
        shown = await servers.call("test__picture", "")
        assert (shown.text, len(shown.pictures)) == ("", 1)
        assert shown.pictures[0].startswith("data:image/png;base64,")
        odd, failed = await called(servers, "odd")
        assert not failed
        assert "[content of type hologram, which cannot be shown here]" in odd
        assert "[a picture that cannot be shown: " in odd


async def test_servers_get_their_variables_and_few_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAN_SERVE_API_KEY", "secret")
    async with opened(tmp_path, test=entry(TOKEN="t")) as servers:
        assert await called(servers, "variable", name="TOKEN") == ("t", False)
        assert await called(servers, "variable", name="JAN_SERVE_API_KEY") == ("None", False)


async def test_wrong_tools_are_left_out_with_the_reason(tmp_path: Path) -> None:
    async with opened(tmp_path, test=entry("lies")) as servers:
        assert list(servers.tools) == ["test__add"]
        left_out = servers.sessions[0].left_out
        for (_, reason), found in zip(LIES, left_out, strict=True):
            assert reason in found.reason
        assert await called(servers, "add", a=1, b=1) == ("2", False)


async def test_an_endless_list_is_cut(tmp_path: Path) -> None:
    async with opened(tmp_path, test=entry("endless")) as servers:
        assert len(servers.tools) == MAX_TOOLS
        assert f"beyond the {MAX_TOOLS} tools" in servers.sessions[0].left_out[-1].reason


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        (entry("ends"), "ended (exit status 1): no database here"),
        (entry("line"), "sent a message of more than 8388608 bytes"),
        (entry("notes"), "sent more than 10000 messages or 40960000 bytes unasked"),
        (entry("text"), "failed: its list of tools is not a list"),
        ({"command": "no-such-program"}, "failed: there is no program no-such-program"),
        ({"command": "cat", "cwd": "/no/such/folder"}, "failed: No such file or directory"),
        ({"url": "http://127.0.0.1:1/mcp"}, "failed: "),
    ],
)
async def test_a_broken_server_is_a_line_and_others_go_on(
    tmp_path: Path, broken: dict[str, Any], reason: str
) -> None:
    async with opened(tmp_path, broken=broken, test=entry()) as servers:
        error = servers.sessions[0].error
        assert error is not None
        assert error.startswith(reason)
        assert await called(servers, "add", a=1, b=1) == ("2", False)


@pytest.mark.parametrize(
    ("answers", "headers"),
    [
        (b"x" * (9 << 20), {}),
        (b"\x1f\x8b" + b"x" * 100, {"content_encoding": "gzip"}),
        (b"{}", {}),
        (b"[" * 100_000, {}),
        (b"not JSON", {}),
    ],
)
async def test_a_broken_server_by_http(tmp_path: Path, answers: bytes, headers: dict[str, str]) -> None:
    with http_server(answers=answers, **headers) as url:
        async with opened(tmp_path, McpLimits(start_s=5), broken={"url": url}, test=entry()) as servers:
            assert servers.sessions[0].error is not None
            assert (await called(servers, "add", a=1, b=1))[0] == "2"


@pytest.mark.parametrize("habit", ["silent", "no-list"])
async def test_a_server_that_hangs_at_its_start(tmp_path: Path, habit: str) -> None:
    async with opened(tmp_path, McpLimits(start_s=0.2), test=entry(habit)) as servers:
        assert servers.sessions[0].error == "did not start within 0.2 s"
        assert await called(servers, "add") == ("There is no tool test__add.", True)


async def test_a_tool_that_hangs(tmp_path: Path) -> None:
    async with opened(tmp_path, McpLimits(call_s=0.2), test=entry()) as servers:
        assert await called(servers, "wait") == ("The tool gave no result within 0.2 s.", True)


async def test_a_cancelled_call_is_cancelled_at_the_server(tmp_path: Path) -> None:
    told = tmp_path / "told"
    async with opened(tmp_path, test=entry(TOLD=str(told))) as servers:
        call = asyncio.create_task(called(servers, "wait"))
        while not (tmp_path / "told-begun").exists():
            await called(servers, "add", a=1, b=1)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await called(servers, "add", a=1, b=1)  # the server reads in order
        assert told.read_text() == "cancelled"


@pytest.mark.parametrize(
    ("tool", "reason"), [("die", "ended (exit status 1): out of memory"), ("flood", "sent more than 10000 ")]
)
async def test_a_server_that_ends_during_a_call_is_started_again_by_the_next(
    tmp_path: Path, tool: str, reason: str
) -> None:
    async with opened(tmp_path, test=entry()) as servers:
        first, _ = await called(servers, "pid")
        text, failed = await called(servers, tool)
        assert text.startswith(f"The MCP server test {reason}")
        assert failed
        again, failed = await called(servers, "pid")
        assert not failed
        assert again != first


async def test_no_server_outlives_its_session(tmp_path: Path) -> None:
    """Not even one that goes on at the end of its input."""
    pids: list[int] = []
    async with opened(tmp_path, test=entry("stays")) as servers:
        pids.append(int((await called(servers, "pid"))[0]))
        assert psutil.pid_exists(pids[0])
    assert not psutil.pid_exists(pids[0])
    assert pids != [os.getpid()]
