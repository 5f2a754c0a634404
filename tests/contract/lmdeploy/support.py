"""Calls to the application with this folder's dialects only, over the models of each call."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import httpx

from jan_serve.dialects.lmdeploy.dialect import lmdeploy_dialect
from jan_serve.dialects.openai.dialect import openai_dialect
from jan_serve.ipc.messages import Accepted, Chunk, EngineEvent, EngineRequest, StateKept
from tests.support.engine.fake_client import FakeModels, endings, token_infos
from tests.support.servers import fronts

http_client = partial(fronts.http_client, dialects=(openai_dialect, lmdeploy_dialect))


async def post(path: str, body: Any, models: FakeModels | None = None) -> httpx.Response:
    """The response of one call."""
    async with http_client(models) as client:
        return await client.post(path, json=body)


async def keeping(request: EngineRequest) -> AsyncIterator[EngineEvent]:
    """A script: a letter, and the state of the prompt where the request keeps it."""
    yield Accepted(request.id, 130)
    if request.keep_state:
        yield StateKept(id=request.id, tokens=130, next_token=65)
    yield Chunk(0, "A", token_infos("A"), id=request.id)
    for event in endings(request, 1, reason="length", eos=False):
        yield event
