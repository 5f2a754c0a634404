"""Calls to the application with this folder's dialects only, over the models of each call."""

from __future__ import annotations

from functools import partial
from typing import Any

import httpx

from jan_serve.dialects.lmdeploy.dialect import lmdeploy_dialect
from jan_serve.dialects.openai.dialect import openai_dialect
from tests.support import fronts
from tests.support.fake_client import FakeModels

http_client = partial(fronts.http_client, dialects=(openai_dialect, lmdeploy_dialect))


async def post(path: str, body: Any, models: FakeModels | None = None) -> httpx.Response:
    """The response of one call."""
    async with http_client(models) as client:
        return await client.post(path, json=body)
