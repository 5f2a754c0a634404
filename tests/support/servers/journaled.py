"""Servers over one data folder, one after the other, in the test's process."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from typing import Any

import httpx

from jan_serve.api.app import create_app
from jan_serve.ipc.messages import Accepted, Chunk, EngineEvent, EngineRequest
from tests.support.engine.fake_client import FakeModels, Script, endings, prompt_text
from tests.support.helpers.compiling import translate_inline
from tests.support.helpers.rendering import render_inline
from tests.support.servers.fronts import make_settings


@contextlib.asynccontextmanager
async def journaled_server(
    folder: Path, models: FakeModels | None = None, *, key: str | None = None, **settings: Any
) -> AsyncGenerator[httpx.AsyncClient]:
    """A client of a server that goes on with what the journal in `folder` has. The end of the block ends it."""
    app = create_app(
        make_settings(data_dir=folder, **settings), models or FakeModels(), render_inline, translate_inline
    )
    background = app.state.parts.background
    headers = {"authorization": f"Bearer {key}"} if key is not None else None
    await background.start()
    transport = httpx.ASGITransport(app, raise_app_exceptions=True)
    try:
        async with httpx.AsyncClient(
            transport=transport, base_url="http://localhost", headers=headers
        ) as client:
            yield client
    finally:
        await background.stop()
        await background.journal.close()
        await app.state.parts.chats.close()


class Gate:
    """Holds the answers of a script after some pieces."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.opened = asyncio.Event()

    def saying(self, *pieces: str, after: int) -> Script:
        """These pieces; the gate is before number `after`."""

        async def script(request: EngineRequest) -> AsyncIterator[EngineEvent]:
            yield Accepted(request.id, len(prompt_text(request)))
            for number, piece in enumerate(pieces):
                if number == after:
                    self.reached.set()
                    await self.opened.wait()
                yield Chunk(0, piece, id=request.id)
            for event in endings(request, len(pieces)):
                yield event

        return script
