"""All routes of Ollama's API. Those that show models and the server are here."""

from __future__ import annotations

import asyncio
from typing import Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from jan_serve.dialects.dialect import Services
from jan_serve.dialects.model_store import ModelStore
from jan_serve.dialects.ollama import models
from jan_serve.dialects.ollama.answer_routes import add_answer_routes
from jan_serve.dialects.ollama.embed import add_embedding_routes
from jan_serve.dialects.ollama.errors import OllamaError
from jan_serve.dialects.ollama.management import (
    add_management_routes,
    add_refusals,
    add_upload_routes,
)
from jan_serve.dialects.ollama.models import listed_rows, loaded_rows, shown
from jan_serve.dialects.ollama.parse_common import model_name
from jan_serve.dialects.ollama.serving import Serving
from jan_serve.dialects.shared.error_responses import MANAGING, error_responses
from jan_serve.errors import InvalidRequest
from jan_serve.http.json_body import JsonRoute
from jan_serve.http.replies import json_reply

_COPILOT: Final = "GitHubCopilotChat/"

VERSION: Final = "0.32.0"
"""The release of Ollama whose API this is. Clients compare it: Copilot wants 0.6.4 at least."""


def add_server_routes(router: APIRouter) -> None:
    @router.get("/api/version", response_model=models.OllamaVersion)
    async def version() -> Response:
        """The release of Ollama whose API this is."""
        return json_reply({"version": VERSION})

    @router.get("/api/status", response_model=models.OllamaStatus)
    async def status() -> Response:
        """There are no models elsewhere."""
        return json_reply({"cloud": {"disabled": True, "source": "none"}})

    @router.get("/api/experimental/model-recommendations", response_model=models.Recommendations)
    async def recommendations() -> Response:
        """None."""
        return json_reply({"recommendations": []})


def add_model_routes(router: APIRouter, serving: Serving, store: ModelStore) -> None:
    @router.get("/api/tags", summary="Models", response_model=models.ModelRows)
    async def tags() -> Response:
        """All models that requests can name. Waits for no load."""
        models = await store.models()
        rows = await asyncio.to_thread(lambda: listed_rows(models, serving.preparer.template_overrides()))
        return json_reply({"models": rows})

    @router.get("/api/ps", summary="Models in memory", response_model=models.LoadedRows)
    async def ps() -> Response:
        """The models in memory."""
        rows = loaded_rows(await store.models(), serving.models.snapshot().models, serving.now())
        return json_reply({"models": rows})

    @router.post("/api/show", summary="Model", response_model=models.OllamaShowReply)
    async def show(request: Request, body: models.OllamaShowRequest) -> Response:
        """Header, template and abilities of a model, which is not loaded for that."""
        name = model_name(body)
        found = await store.details(name)
        template = serving.preparer.template(found.model.name, found.templates, name)
        titled = request.headers.get("user-agent", "").startswith(_COPILOT)
        return json_reply(shown(found, name, template, verbose=bool(body.verbose), titled=titled))


_ERRORS: Final = error_responses(OllamaError, MANAGING)


class OllamaRoute(JsonRoute):
    def check_body(self, body: bytes) -> None:
        """Raises InvalidRequest for an empty body, in Ollama's words."""
        if not body.strip():
            raise InvalidRequest("missing request body")


def ollama_router(services: Services) -> APIRouter:
    router = APIRouter(route_class=OllamaRoute, tags=["Ollama"], responses=_ERRORS)
    serving = Serving(services)
    add_server_routes(router)
    add_answer_routes(router, serving)
    add_embedding_routes(router, serving)
    if services.store is not None:
        add_model_routes(router, serving, services.store)
        add_management_routes(router, serving, services.store)
        add_upload_routes(router, services.store)
    add_refusals(router)
    return router
