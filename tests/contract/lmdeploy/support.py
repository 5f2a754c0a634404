"""One application for the tests of this folder, over the models that each call brings. Building one takes its time."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import httpx

from jan_serve.api.app import create_app
from jan_serve.api.dialects.jan import JAN
from jan_serve.api.dialects.lmdeploy import LMDEPLOY
from tests.support import fronts
from tests.support.fake_client import FakeModels
from tests.support.rendering import InlineRenderer

_DIALECTS: Final = (JAN, LMDEPLOY)
_MODELS: Final = FakeModels()
_APP: Final = create_app(fronts.make_settings(), _MODELS, InlineRenderer(), dialects=_DIALECTS)

http_client = partial(fronts.http_client, dialects=_DIALECTS)
"""An application of its own, where settings, counts or ids matter."""


async def post(path: str, body: Any, models: FakeModels | None = None) -> httpx.Response:
    """The response of the shared application."""
    _MODELS.clients = (models or FakeModels()).clients
    transport = httpx.ASGITransport(_APP, raise_app_exceptions=True)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        return await client.post(path, json=body)
