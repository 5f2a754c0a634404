"""All routes of Text Generation Inference:

the native ones at the root too, everything strictly under /tgi. Those about the server itself (/info, /health,
/metrics, /v1/models) are here.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from jan_serve.core.models import ModelFacts
from jan_serve.dialects.dialect import Services
from jan_serve.dialects.shared.error_responses import error_responses
from jan_serve.dialects.tgi.chat.routes import add_chat_routes
from jan_serve.dialects.tgi.completions.routes import add_completion_routes
from jan_serve.dialects.tgi.errors import ErrorBody
from jan_serve.dialects.tgi.generate.routes import add_native_routes
from jan_serve.dialects.tgi.generate.wire import Info, ModelList
from jan_serve.dialects.tgi.limits import VALIDATION_WORKERS, GenerateLimits
from jan_serve.dialects.tgi.metrics import TgiMetrics
from jan_serve.dialects.tgi.outline import PREFIX
from jan_serve.dialects.tgi.platforms import add_platform_routes
from jan_serve.dialects.tgi.reply_facts import DOCKER_LABEL, TGI_VERSION
from jan_serve.dialects.tgi.serving import Serving
from jan_serve.http.disconnect import while_connected
from jan_serve.http.guards.body import too_large
from jan_serve.http.json_body import JsonRoute
from jan_serve.http.metrics import page_headers
from jan_serve.http.replies import json_reply

_UNHEALTHY: ErrorBody = {"error": "unhealthy", "error_type": "healthcheck"}


def add_info_route(router: APIRouter, serving: Serving, prefix: str) -> None:
    @router.get(f"{prefix}/info", response_model=Info)
    async def info(request: Request) -> Response:
        """The default model, which is loaded for this, and the server's limits."""
        name, facts = await while_connected(request, serving.generation.facts(None))
        limits = serving.limits
        max_input, max_total = limits.input_tokens(facts), limits.total_tokens(facts)
        body: Info = {
            "model_id": name,
            "model_sha": None,
            "model_pipeline_tag": "text-generation",
            "max_concurrent_requests": limits.max_concurrent_requests,
            "max_best_of": limits.max_best_of,
            "max_stop_sequences": limits.max_stop_sequences,
            "max_input_tokens": max_input,
            "max_total_tokens": max_total,
            "validation_workers": VALIDATION_WORKERS,
            "max_client_batch_size": limits.max_client_batch_size,
            "router": "text-generation-router",
            "version": TGI_VERSION,
            "sha": None,
            "docker_label": DOCKER_LABEL,
            "model_dtype": _description(facts),
            "model_device_type": facts.device,
            "max_input_length": max_input,
            "waiting_served_ratio": 0.3,
            "max_batch_total_tokens": facts.n_ctx,
            "max_waiting_tokens": 20,
            "max_batch_size": facts.parallel,
        }
        return json_reply(body)


def _description(facts: ModelFacts) -> str:
    """llama.cpp's, with the number of parameters where it knows no name for the size."""
    return facts.description.replace("?B", f"{facts.n_params / 1e6:.3g}M")


def add_mounted_facts(router: APIRouter, serving: Serving) -> None:
    """Routes of TGI whose root paths belong to the whole server."""

    async def health() -> Response:
        """Alive: an empty 200, or 503 while a model is failed."""
        if any(model.state == "failed" for model in serving.models.snapshot().models):
            return json_reply(_UNHEALTHY, 503)
        return Response()

    for path in ("/tgi", "/tgi/", "/tgi/health"):
        router.get(path, response_class=Response)(health)

    @router.get("/tgi/metrics", responses={200: {"content": {"text/plain": {}}}})
    async def metrics() -> Response:
        """Prometheus text exposition, the same as at the root."""
        return Response(serving.metrics_page(), headers=page_headers())

    @router.get("/tgi/v1/models", response_model=ModelList)
    async def models(request: Request) -> Response:
        """The model that is served."""
        name, _ = await while_connected(request, serving.generation.facts(None))
        entry = {"id": name, "object": "model", "created": 0, "owned_by": name}
        return json_reply({"object": "list", "data": [entry]})


_TEXT: Final[dict[str, Any]] = {"content": {"text/plain": {"schema": {"type": "string"}}}}
_ERRORS: Final = error_responses(
    ErrorBody,
    (403, 404, 424, 429, 500, 503, 504),
    {
        **dict.fromkeys((400, 413, 415), _TEXT),
        401: {"description": "A key is needed; there is no body"},
        422: {"content": {"application/json": {}, "text/plain": {}}},
    },
)


class TgiRoute(JsonRoute):
    """A route with TGI's limit on the body."""

    max_body_bytes: ClassVar[int]

    def check_body(self, body: bytes) -> None:
        """Raises HttpError for a body that is too large."""
        if len(body) > self.max_body_bytes:
            raise too_large(self.max_body_bytes)


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
