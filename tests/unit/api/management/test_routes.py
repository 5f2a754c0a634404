"""Work that goes on after its request: the routes tell of it until it is done."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from jan_serve.api.app import create_app
from jan_serve.api.management.pulls import Management
from tests.support.engine.fake_client import FakeModels
from tests.support.helpers.compiling import translate_inline
from tests.support.helpers.rendering import render_inline
from tests.support.servers.fronts import make_settings

pytestmark = pytest.mark.anyio


class Work:
    """The manager and the library: a load or a download runs until the test ends it."""

    def __init__(self) -> None:
        self.running = asyncio.Event()
        self.over = asyncio.Event()
        self.free_memory = None

    async def models(self) -> tuple[Any, ...]:
        return ()

    def find(self, name: str) -> str:
        return name

    async def plan(self, text: str, revision: str | None) -> Any:
        return SimpleNamespace(name=text, n_bytes=1)

    async def pull(self, plan: Any, watcher: Any) -> Any:
        await self._run()
        return SimpleNamespace(name=plan.name, aliases=())

    async def load(self, name: str, ttl_s: float | None) -> None:
        await self._run()

    async def _run(self) -> None:
        self.running.set()
        await self.over.wait()


@pytest.mark.parametrize(("path", "options"), [("/models", {}), ("/models/load", {"wait": False})])
async def test_background_work_is_known_until_it_is_done(path: str, options: dict[str, bool]) -> None:
    work = Work()
    parts: Any = work
    management = Management(parts, parts)
    app = create_app(
        make_settings(), FakeModels(), render_inline, translate_inline, management=management, dialects=()
    )
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        answer = await client.post(path, json={"model": "m", **options})
    assert answer.status_code == 200, answer.text
    await work.running.wait()
    [task] = management.background
    work.over.set()
    await task
    await asyncio.sleep(0)
    assert not management.background
