"""All routes of Ollama's API."""

from __future__ import annotations

from typing import Any, Final

from fastapi import APIRouter

from jan_serve.dialects.dialect import Services
from jan_serve.dialects.ollama.answer_routes import add_answer_routes
from jan_serve.dialects.ollama.embed.routes import add_embedding_routes
from jan_serve.dialects.ollama.errors import OllamaError
from jan_serve.dialects.ollama.management.routes import (
    add_management_routes,
    add_refusals,
    add_upload_routes,
)
from jan_serve.dialects.ollama.models.routes import add_model_routes, add_server_routes
from jan_serve.dialects.ollama.serving import Serving
from jan_serve.errors import InvalidRequest
from jan_serve.http.json_body import JsonRoute

_ERROR: Final[dict[str, Any]] = {
    # Written out once: FastAPI would make a validator of the model for each status of each route.
    "content": {"application/json": {"schema": {"type": "object", "required": ["error"], "properties": {
        "error": {"type": "string"}}}}}
}  # fmt: skip
_ERRORS: Final[dict[int | str, dict[str, Any]]] = {
    400: {"model": OllamaError, "description": "The body, a value or the whole request is refused"},
    401: {**_ERROR, "description": "A key is needed"},
    403: {**_ERROR, "description": "Host or Origin is not allowed, or the hub refuses access"},
    404: {**_ERROR, "description": "There is no model"},
    409: {**_ERROR, "description": "The model is in use"},
    413: {**_ERROR, "description": "The body is too large"},
    415: {**_ERROR, "description": "The body is not JSON"},
    422: {**_ERROR, "description": "The model's file cannot be used"},
    500: {**_ERROR, "description": "The server failed"},
    502: {**_ERROR, "description": "The hub's answer is wrong"},
    503: {**_ERROR, "description": "The queue is full, loading failed, or the server stops"},
    504: {**_ERROR, "description": "The request took too long"},
    507: {**_ERROR, "description": "The disk has no room"},
}


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
