"""Pages of desktop applications."""

from __future__ import annotations

import httpx
import pytest

pytestmark = pytest.mark.anyio

CHAT = {"messages": [{"role": "user", "content": "Hi"}]}


@pytest.mark.parametrize(
    "origin",
    [
        "app://obsidian.md", "capacitor://localhost", "vscode-file://vscode-app", "https://tauri.localhost",
        "vscode-webview://1l1ocsum2m9ft4fcr0l4b6rdvqvgbc2hmi0vnl3j9ipsvr6n0h3q", "tauri://localhost",
    ],
)  # fmt: skip
async def test_their_pages_may_call(client: httpx.AsyncClient, origin: str) -> None:
    response = await client.get("/api/version", headers={"origin": origin})
    assert response.status_code == 200
    assert response.headers["access-control-allow-origin"] == origin


@pytest.mark.parametrize(
    "origin",
    [
        "app://evil.md", "app://obsidian.md.evil", "https://obsidian.md", "http://tauri.localhost.evil",
        "vscode-webview://a.b", "chrome-extension://abcdefghijklmnopabcdefghijklmnop", "file://", "null",
        "vscode-webview://", "capacitor://localhost:1",
    ],
)  # fmt: skip
async def test_no_others(client: httpx.AsyncClient, origin: str) -> None:
    response = await client.post("/api/chat", json=CHAT, headers={"origin": origin})
    assert (response.status_code, "access-control-allow-origin" in response.headers) == (403, False)
