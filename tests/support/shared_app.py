"""One application for all tests of a module: building one takes longer than most calls of it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import httpx

from jan_serve.api.app import create_app
from tests.support.fake_client import FakeClient, FakeModels
from tests.support.fronts import make_settings
from tests.support.rendering import InlineRenderer


class SharedApp:
    """Over fake models that each use replaces, with default settings. Nothing of one use must matter to the next."""

    def __init__(self) -> None:
        self._models = FakeModels()
        self._transport = httpx.ASGITransport(create_app(make_settings(), self._models, InlineRenderer()))

    @asynccontextmanager
    async def over(self, *clients: FakeClient) -> AsyncGenerator[httpx.AsyncClient]:
        """A client of the application, whose models are these now."""
        self._models.clients = clients or (FakeClient(),)
        async with httpx.AsyncClient(transport=self._transport, base_url="http://localhost") as client:
            yield client
