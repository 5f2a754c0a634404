"""/extras/mcp: the tools of real MCP servers, for the owner of the server alone."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from tests.support.servers.fronts import http_client, refused
from tests.support.servers.mcp_server import LIES, entry
from tests.support.servers.served import serving

pytestmark = pytest.mark.anyio


def write(file: Path, **entries: Any) -> None:
    file.write_text(json.dumps({"mcpServers": entries}))


@contextlib.asynccontextmanager
async def served(file: Path, **settings: Any) -> AsyncGenerator[httpx.AsyncClient]:
    async with http_client(fresh=True, mcp_file=file, **settings) as client:
        transport: Any = client._transport  # pyright: ignore[reportPrivateUsage]
        try:
            yield client
        finally:
            await transport.app.state.parts.close()


async def called(client: httpx.AsyncClient, name: str, **arguments: Any) -> dict[str, Any]:
    body = {"name": name, "arguments": json.dumps(arguments)}
    return (await client.post("/extras/mcp/call", json=body)).json()


async def test_servers_and_tools_are_listed_and_called_and_the_file_may_change(tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    async with served(file) as client:
        assert (await client.get("/extras/mcp")).json() == {"servers": [], "error": None}
        write(file, test=entry("lies"), ends=entry("ends"))
        test, ends = (await client.get("/extras/mcp")).json()["servers"]
        assert [tool["name"] for tool in test["tools"]] == ["test__add"]
        assert len(test["left_out"]) == len(LIES)
        assert (ends["error"], ends["tools"]) == ("ended (exit status 1): no database here", [])
        assert await called(client, "test__add", a=1, b=2) == {"text": "3", "pictures": [], "failed": False}
        write(file, other=entry())
        assert (await called(client, "test__add"))["failed"]
        await client.get("/extras/mcp")
        assert (await called(client, "other__picture"))["pictures"][0].startswith("data:image/png;base64,")
        pid = int((await called(client, "other__pid"))["text"])
        file.write_text("{")
        assert "not JSON" in (await client.get("/extras/mcp")).json()["error"]
        assert (await called(client, "other__pid"))["failed"]
    assert not psutil.pid_exists(pid)


async def test_no_file_is_no_servers(tmp_path: Path) -> None:
    async with http_client(fresh=True, mcp_file=None) as client:
        assert (await client.get("/extras/mcp")).json() == {"servers": [], "error": None}


@pytest.mark.parametrize(
    ("settings", "headers", "refusal"),
    [
        ({}, {}, None),
        ({}, {"origin": "http://localhost"}, None),
        ({}, {"origin": "http://localhost:3000"}, "forbidden_origin"),
        ({}, {"origin": "http://localhost:3000", "sec-fetch-site": "same-site"}, "forbidden_origin"),
        ({"allowed_origins": ("*",)}, {"origin": "https://evil.example"}, "forbidden_origin"),
        ({"api_keys": ("first", "second")}, {"authorization": "Bearer first"}, None),
        ({"api_keys": ("first", "second")}, {"x-api-key": "first"}, None),
        ({"api_keys": ("first", "second")}, {"authorization": "Bearer second"}, "owner_only"),
        ({"host": "0.0.0.0", "no_auth": True}, {}, "owner_only"),
    ],
)
async def test_only_the_owner_reaches_them(
    tmp_path: Path, settings: Any, headers: dict[str, str], refusal: str | None
) -> None:
    file = tmp_path / "mcp.json"
    async with http_client(fresh=True, mcp_file=file, headers=headers, **settings) as client:
        listed = await client.get("/extras/mcp")
        call = await client.post("/extras/mcp/call", json={"name": "a"})
    if refusal is None:
        assert (listed.status_code, call.status_code) == (200, 200)
    else:
        refused(listed, 403, refusal)
        refused(call, 403, refusal)


async def test_no_request_names_a_server(tmp_path: Path) -> None:
    async with served(tmp_path / "mcp.json") as client:
        body = {
            "name": "a",
            "command": "touch",
            "args": [str(tmp_path / "made")],
            "mcpServers": {"a": entry()},
        }
        await client.post("/extras/mcp/call", json=body)
        assert (await client.get("/extras/mcp")).json() == {"servers": [], "error": None}
        assert not (tmp_path / "made").exists()


async def test_a_call_is_cancelled_when_the_client_leaves(tmp_path: Path) -> None:
    told = tmp_path / "told"
    data = tmp_path / "data"
    data.mkdir()
    write(data / "mcp.json", test=entry(TOLD=str(told)))
    (tmp_path / "config.toml").write_text('data_dir = "data"\nport = 0\n')
    with serving(tmp_path) as server:
        url = await asyncio.to_thread(server.url)
        async with httpx.AsyncClient(base_url=url, timeout=120) as client:
            await client.get("/extras/mcp")
            waiting = asyncio.create_task(called(client, "test__wait"))
            while not (tmp_path / "told-begun").exists():
                await called(client, "test__add", a=1, b=1)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            while not told.exists():
                await called(client, "test__add", a=1, b=1)
