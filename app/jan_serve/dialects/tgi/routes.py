"""All routes of Text Generation Inference: the native ones at the root too, everything strictly under /tgi."""

from __future__ import annotations

from typing import Any, ClassVar, Final

from fastapi import APIRouter
from fastapi.exceptions import RequestValidationError
from pydantic import TypeAdapter

from jan_serve.dialects.dialect import Services
from jan_serve.dialects.tgi.chat.routes import add_chat_routes
from jan_serve.dialects.tgi.completions.routes import add_completion_routes
from jan_serve.dialects.tgi.errors import ErrorBody, deserialize_error
from jan_serve.dialects.tgi.generate.routes import add_native_routes
from jan_serve.dialects.tgi.head import PREFIX
from jan_serve.dialects.tgi.launcher_limits import GenerateLimits
from jan_serve.dialects.tgi.metrics import TgiMetrics
from jan_serve.dialects.tgi.platforms.routes import add_platform_routes
from jan_serve.dialects.tgi.routes_facts import add_info_route, add_mounted_facts
from jan_serve.dialects.tgi.serving import Serving
from jan_serve.http.errors import HttpError, validation_problem
from jan_serve.http.guards.body import too_large
from jan_serve.http.json_body import JsonRoute

_TEXT: Final[dict[str, Any]] = {"content": {"text/plain": {"schema": {"type": "string"}}}}
_ERROR: Final[dict[str, Any]] = {
    # Written out once: FastAPI would make a validator of the model for each status of each route.
    "content": {"application/json": {"schema": TypeAdapter(ErrorBody).json_schema()}}
}
_ERRORS: Final[dict[int | str, dict[str, Any]]] = {
    400: {**_TEXT, "description": "The body is not JSON"},
    401: {"description": "A key is needed; there is no body"},
    403: {**_ERROR, "description": "Host or Origin is not allowed"},
    404: {**_ERROR, "description": "There is no model"},
    413: {**_TEXT, "description": "The body is too large"},
    415: {**_TEXT, "description": "The body is not JSON"},
    422: {
        "description": "A parameter is refused (JSON), or the body breaks the schema (text)",
        "content": {"application/json": {}, "text/plain": {}},
    },
    424: {**_ERROR, "description": "Generation failed"},
    429: {**_ERROR, "description": "Too many requests are waiting"},
    500: {**_ERROR, "description": "The server failed"},
    503: {**_ERROR, "description": "Loading failed, or the server stops"},
    504: {**_ERROR, "description": "The request took too long"},
}


class TgiRoute(JsonRoute):
    """A route with TGI's limit on the body, and with TGI's texts for a body that does not fit."""

    max_body_bytes: ClassVar[int]

    def check_body(self, body: bytes) -> None:
        """Raises HttpError for a body that is too large."""
        if len(body) > self.max_body_bytes:
            raise too_large(self.max_body_bytes)

    def refusal(self, error: RequestValidationError, body: bytes) -> Exception:
        message = deserialize_error(error.errors(), error.body, body)
        return HttpError(validation_problem([{"loc": ("body",), "msg": message, "type": "rejected"}]))


def tgi_router(services: Services, limits: GenerateLimits, metrics: TgiMetrics) -> APIRouter:
    class Limited(TgiRoute):
        max_body_bytes = limits.max_body_bytes

    router = APIRouter(route_class=Limited, responses=_ERRORS, tags=["Text Generation Inference"])
    serving = Serving(services, limits, metrics)
    for prefix in ("", PREFIX):
        add_native_routes(router, serving, prefix)
        add_platform_routes(router, serving, prefix)
        add_info_route(router, serving, prefix)
    add_chat_routes(router, serving)
    add_completion_routes(router, serving)
    add_mounted_facts(router, serving)
    return router
