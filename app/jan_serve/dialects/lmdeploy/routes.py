"""All routes of the LMDeploy dialect: under /lmdeploy, and at the root those that no other dialect has."""

from __future__ import annotations

from typing import Any, Final

from fastapi import APIRouter
from pydantic import TypeAdapter
from starlette.responses import Response

from jan_serve.dialects.dialect import Services
from jan_serve.dialects.lmdeploy.control.routes import add_control_routes
from jan_serve.dialects.lmdeploy.distserve.routes import add_distserve_routes
from jan_serve.dialects.lmdeploy.generation_routes import add_generation_routes
from jan_serve.dialects.lmdeploy.head import DEPRECATED_CHAT, PREFIX
from jan_serve.dialects.lmdeploy.inputs.routes import (
    add_embedding_route,
    add_encode_route,
    add_pooling_route,
)
from jan_serve.dialects.lmdeploy.routes_status import add_model_route, add_state_routes
from jan_serve.dialects.lmdeploy.services import lmdeploy_services
from jan_serve.dialects.lmdeploy.wire_common import KeyErrorBody, ValidationErrorBody
from jan_serve.dialects.shared.flat_errors import ErrorBody
from jan_serve.errors import InvalidRequest
from jan_serve.http.json_body import JsonRoute

_ERROR: Final[dict[str, Any]] = {
    # The schema itself: FastAPI would build a validator of the model for each status of each route.
    "content": {"application/json": {"schema": TypeAdapter(ErrorBody).json_schema()}}
}
_ERRORS: Final[dict[int | str, dict[str, Any]]] = {
    400: {**_ERROR, "description": "A value or the whole request is refused"},
    401: {"model": KeyErrorBody, "description": "A key is needed"},
    403: {**_ERROR, "description": "Host or Origin is not allowed"},
    404: {**_ERROR, "description": "There is no such model"},
    413: {**_ERROR, "description": "The body is too large"},
    415: {**_ERROR, "description": "The body is not JSON"},
    422: {"model": ValidationErrorBody, "description": "The request breaks the schema"},
    429: {**_ERROR, "description": "The queue is full"},
    500: {**_ERROR, "description": "The server failed"},
    503: {**_ERROR, "description": "Loading failed, or the server stops"},
    504: {**_ERROR, "description": "The request took too long"},
}


def lmdeploy_router(services: Services) -> APIRouter:
    router = APIRouter(route_class=JsonRoute, responses=_ERRORS, tags=["LMDeploy"])
    ours = lmdeploy_services(services)
    add_generation_routes(router, ours, PREFIX)
    for prefix in ("", PREFIX):
        add_encode_route(router, ours, prefix)
        add_pooling_route(router, ours, prefix)
        _add_deprecated_route(router, prefix)
        if ours.control is not None:
            add_distserve_routes(router, ours, ours.control.links, prefix)
            add_control_routes(router, ours, ours.control, prefix)
    add_embedding_route(router, ours, PREFIX)
    add_model_route(router, services, PREFIX)
    add_state_routes(router, services.health, services.metrics.page, PREFIX)
    return router


def _add_deprecated_route(router: APIRouter, prefix: str) -> None:
    @router.post(f"{prefix}{DEPRECATED_CHAT}", include_in_schema=False)
    async def chat_interactive() -> Response:
        """Rejects LMDeploy's former chat route and names its replacement."""
        raise InvalidRequest(
            f"{DEPRECATED_CHAT} is deprecated: use /v1/chat/completions, whose prefixes are cached."
        )
