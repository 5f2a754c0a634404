"""All routes of the Anthropic dialect."""

from __future__ import annotations

from typing import Any, Final

from fastapi import APIRouter

from jan_serve.dialects.anthropic.claude_names import names_for, names_or_default
from jan_serve.dialects.anthropic.errors import AnthropicError
from jan_serve.dialects.anthropic.head import PREFIX
from jan_serve.dialects.anthropic.messages.routes import add_message_routes
from jan_serve.dialects.anthropic.models.routes import add_model_routes
from jan_serve.dialects.dialect import Services
from jan_serve.generation.service import GenerationService
from jan_serve.http.json_body import JsonRoute

_ERROR: Final[dict[str, Any]] = {
    # FastAPI would make a validator of a model for each status of each route: only status 400 has the model.
    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/AnthropicError"}}}
}
_ERRORS: Final[dict[int | str, dict[str, Any]]] = {
    400: {"model": AnthropicError, "description": "The request is refused"},
    401: {**_ERROR, "description": "A key is needed"},
    403: {**_ERROR, "description": "Host or Origin is not allowed"},
    404: {**_ERROR, "description": "There is no model"},
    413: {**_ERROR, "description": "The body is too large"},
    415: {**_ERROR, "description": "The body is not JSON"},
    500: {**_ERROR, "description": "The server failed"},
    504: {**_ERROR, "description": "The request took too long"},
    529: {**_ERROR, "description": "The queue is full, loading failed, or the server stops"},
}


def anthropic_router(
    services: Services, *, serves_unknown_names: bool, strip_billing_line: bool
) -> APIRouter:
    """serves_unknown_names: the default model answers for models that do not exist. strip_billing_line: see
    `billing_line`."""
    router = APIRouter(route_class=JsonRoute, responses=_ERRORS, tags=["Anthropic"])
    names = names_or_default if serves_unknown_names else names_for
    service = GenerationService(services.models, services.preparer, services.running, names=names)
    add_message_routes(router, services, service, strip_billing_line=strip_billing_line)
    add_model_routes(router, services, PREFIX)
    return router
