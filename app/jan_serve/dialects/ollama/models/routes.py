"""The routes that show models and the server."""

from __future__ import annotations

import asyncio
from typing import Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from jan_serve.dialects.model_store import ModelStore
from jan_serve.dialects.ollama.models import wire
from jan_serve.dialects.ollama.models.listing import listed_rows, loaded_rows
from jan_serve.dialects.ollama.models.show import shown
from jan_serve.dialects.ollama.parse_common import model_name
from jan_serve.dialects.ollama.serving import Serving
from jan_serve.http.replies import json_reply

_COPILOT: Final = "GitHubCopilotChat/"

VERSION: Final = "0.32.0"
"""The release of Ollama whose API this is. Clients compare it: Copilot wants 0.6.4 at least."""


def add_server_routes(router: APIRouter) -> None:
    @router.get("/api/version", response_model=wire.OllamaVersion)
    async def version() -> Response:
        """The release of Ollama whose API this is."""
        return json_reply({"version": VERSION})

    @router.get("/api/status", response_model=wire.OllamaStatus)
    async def status() -> Response:
        """There are no models elsewhere."""
        return json_reply({"cloud": {"disabled": True, "source": "none"}})

    @router.get("/api/experimental/model-recommendations", response_model=wire.Recommendations)
    async def recommendations() -> Response:
        """None."""
        return json_reply({"recommendations": []})


def add_model_routes(router: APIRouter, serving: Serving, store: ModelStore) -> None:
    @router.get("/api/tags", summary="Models", response_model=wire.ModelRows)
    async def tags() -> Response:
        """All models that requests can name. Waits for no load."""
        models = await store.models()
        rows = await asyncio.to_thread(lambda: listed_rows(models, serving.preparer.template_overrides()))
        return json_reply({"models": rows})

    @router.get("/api/ps", summary="Models in memory", response_model=wire.LoadedRows)
    async def ps() -> Response:
        """The models in memory."""
        rows = loaded_rows(await store.models(), serving.models.snapshot().models, serving.now())
        return json_reply({"models": rows})

    @router.post("/api/show", summary="Model", response_model=wire.OllamaShowReply)
    async def show(request: Request, body: wire.OllamaShowRequest) -> Response:
        """Header, template and abilities of a model, which is not loaded for that."""
        name = model_name(body)
        found = await store.details(name)
        template = serving.preparer.template(found.model.name, found.templates, name)
        titled = request.headers.get("user-agent", "").startswith(_COPILOT)
        return json_reply(shown(found, name, template, verbose=bool(body.verbose), titled=titled))
