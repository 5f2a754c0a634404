"""/extras/clients: what `jan-serve connect` shows, for the address that was called."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from jan_serve.api.routes.extras import catalogue_router, shown_folders
from jan_serve.editors.recipes import RECIPES
from jan_serve.resources import catalogue_file
from jan_serve.store.hub.references import Catalogue
from jan_serve.store.model_advice import PURPOSES
from jan_serve.store.model_memory import FreeMemory
from tests.support.servers.managed import Managed, add_model, managed_app

pytestmark = pytest.mark.anyio


async def clients(managed: Managed, query: str = "", **headers: str) -> dict[str, dict[str, Any]]:
    response = await managed.client.get(f"/extras/clients{query}", headers=headers)
    assert response.status_code == 200, response.text
    return {client["id"]: client for client in response.json()["data"]}


async def test_every_program_has_its_settings_for_the_address_that_was_called(tmp_path: Path) -> None:
    add_model(tmp_path, "one")
    async with managed_app(tmp_path) as managed:
        found = await clients(managed, host="localhost:4242")
    assert set(found) == set(RECIPES)
    assert "http://localhost:4242/v1" in found["continue"]["settings"]
    assert found["continue"]["path"] == "~/.continue/config.yaml"
    assert (found["jetbrains"]["path"], found["jetbrains"]["settings"]) == (None, None)
    assert all(client["settings"] or client["steps"] for client in found.values())
    assert managed.manager.snapshot().models == ()


async def test_the_model_to_begin_with_can_be_chosen(tmp_path: Path) -> None:
    add_model(tmp_path, "one")
    add_model(tmp_path, "two")
    async with managed_app(tmp_path) as managed:
        found = await clients(managed, "?model=two")
        unknown = await managed.client.get("/extras/clients?model=three")
    assert "openai/two" in found["aider"]["settings"]
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "model_not_found")


async def test_a_key_is_named_and_never_shown(tmp_path: Path) -> None:
    add_model(tmp_path, "one")
    async with managed_app(tmp_path, api_keys=["s3cret-key"]) as managed:
        refused = await managed.client.get("/extras/clients")
        response = await managed.client.get("/extras/clients", headers={"x-api-key": "s3cret-key"})
    assert refused.status_code == 401
    assert "s3cret-key" not in response.text
    assert "JAN_SERVE_API_KEY" in response.text


@pytest.mark.parametrize(
    ("platform", "code", "zed"),
    [
        ("linux", "~/.config/Code/User", "~/.config/zed"),
        ("darwin", "~/Library/Application Support/Code/User", "~/.config/zed"),
        ("win32", "~/AppData/Roaming/Code/User", "~/AppData/Roaming/Zed"),
    ],
)
def test_folders_by_platform(platform: str, code: str, zed: str) -> None:
    folders = shown_folders(platform)
    assert (folders.code.as_posix(), folders.zed.as_posix()) == (code, zed)


async def test_every_entry_with_its_sizes(tmp_path: Path) -> None:
    async with managed_app(tmp_path) as managed:
        response = await managed.client.get("/extras/catalogue")
    assert response.status_code == 200
    listed: list[dict[str, Any]] = response.json()["data"]
    entries = Catalogue.read(catalogue_file()).entries()
    assert [model["id"] for model in listed] == [entry.name for entry in entries]
    first, entry = listed[0], entries[0]
    assert first["size_bytes"] == pytest.approx(entry.size_gb * 1e9)
    assert first["memory_bytes"] == pytest.approx(entry.memory_gb * 1e9)
    assert first["n_params"] == pytest.approx(entry.parameters * 1e9)
    assert (first["repo"], first["context_length"]) == (entry.repo, entry.context)


async def test_it_says_which_models_fit() -> None:
    entries = Catalogue.read(catalogue_file()).entries()
    app = FastAPI()
    app.include_router(catalogue_router(catalogue_file(), lambda: FreeMemory(6_000_000_000)))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
        listed = (await client.get("/extras/catalogue")).json()["data"]
    fits = {model["id"]: model["fits"] for model in listed}
    usable = FreeMemory(6_000_000_000).usable
    assert fits == {entry.name: entry.memory_gb * 1e9 <= usable for entry in entries}
    assert set(fits.values()) == {True, False}


async def test_a_key_is_asked_for(tmp_path: Path) -> None:
    async with managed_app(tmp_path, api_keys=["s3cret-key"]) as managed:
        assert (await managed.client.get("/extras/catalogue")).status_code == 401


async def test_an_installation_without_a_catalogue() -> None:
    app = FastAPI()
    app.include_router(catalogue_router(None))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
        assert (await client.get("/extras/catalogue")).json() == {"data": []}


async def test_advice_for_this_machine(tmp_path: Path) -> None:
    async with managed_app(tmp_path) as managed:
        response = await managed.client.get("/extras/advice", params={"for": "agents"})
        refused = await managed.client.get("/extras/advice", params={"for": "poems"})
    assert response.status_code == 200
    advice: dict[str, Any] = response.json()
    assert advice["purpose"] == "agents"
    assert {"id": "agents", "title": PURPOSES["agents"].title} in advice["purposes"]
    assert advice["machine"]["cores"] >= 1 and advice["machine"]["bandwidth"] > 0
    assert advice["data"] and all("tools" in model["kinds"] for model in advice["data"])
    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == "for"
