"""/extras/catalogue: what can be pulled by a short name, with sizes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from jan_serve.api.routes.catalogue import catalogue_router
from jan_serve.resources import catalogue_file
from jan_serve.store.hub.catalogue import Catalogue
from tests.support.managed import managed_app

pytestmark = pytest.mark.anyio


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


async def test_a_key_is_asked_for(tmp_path: Path) -> None:
    async with managed_app(tmp_path, api_keys=["s3cret-key"]) as managed:
        assert (await managed.client.get("/extras/catalogue")).status_code == 401


async def test_an_installation_without_a_catalogue() -> None:
    app = FastAPI()
    app.include_router(catalogue_router(None))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
        assert (await client.get("/extras/catalogue")).json() == {"data": []}
