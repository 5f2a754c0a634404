"""All routes of the LMDeploy dialect:

under /lmdeploy, and at the root those that no other dialect has. Those about the server's state (models, health,
metrics) are here.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from http import HTTPStatus
from typing import Final

from fastapi import APIRouter
from starlette.responses import Response

from jan_serve.dialects.dialect import Services
from jan_serve.dialects.health import Health
from jan_serve.dialects.lmdeploy.control import add_control_routes
from jan_serve.dialects.lmdeploy.distserve.routes import add_distserve_routes
from jan_serve.dialects.lmdeploy.generation_routes import add_generation_routes
from jan_serve.dialects.lmdeploy.inputs.routes import (
    add_embedding_route,
    add_encode_route,
    add_pooling_route,
)
from jan_serve.dialects.lmdeploy.inputs.wire import HealthReply, ModelList
from jan_serve.dialects.lmdeploy.outline import DEPRECATED_CHAT, PREFIX
from jan_serve.dialects.lmdeploy.serving import lmdeploy_services
from jan_serve.dialects.lmdeploy.wire_common import KeyErrorBody, ValidationErrorBody
from jan_serve.dialects.shared.error_responses import error_responses
from jan_serve.dialects.shared.lmdeploy_forms import ErrorBody, permitted_card
from jan_serve.errors import InvalidRequest
from jan_serve.http.json_body import JsonRoute
from jan_serve.http.metrics import page_headers
from jan_serve.http.replies import json_reply


def add_model_route(router: APIRouter, services: Services, prefix: str) -> None:
    @router.get(f"{prefix}/v1/models", response_model=ModelList)
    async def available_models() -> Response:
        """List the available models, each followed by its LoRA adapters as `model:adapter`."""
        created = int(time.time())
        cards = [permitted_card(name, created) for name in await _names(services)]
        return json_reply({"object": "list", "data": cards})


async def _names(services: Services) -> list[str]:
    if services.store is None:
        return [model.name for model in await services.models.models()]
    names: list[str] = []
    for model in await services.store.models():
        names += [model.name, *(f"{model.name}:{adapter}" for adapter in model.adapters)]
    return names


def add_state_routes(
    router: APIRouter, health_now: Callable[[], Health], metrics_page: Callable[[], bytes], prefix: str
) -> None:
    @router.get(f"{prefix}/health", response_model=HealthReply, responses={503: {"model": HealthReply}})
    async def health() -> Response:
        """200 while the server serves requests or sleeps. In the form of LMDeploy 0.16."""
        reply = _health(health_now())
        is_alive = reply["status"] in ("healthy", "sleeping")
        return json_reply(reply, HTTPStatus.OK if is_alive else HTTPStatus.SERVICE_UNAVAILABLE)

    @router.get(
        f"{prefix}/metrics",
        responses={200: {"content": {"text/plain": {}}}},
        response_class=Response,
    )
    async def metrics() -> Response:
        """Prometheus text exposition; the same page as at the root."""
        return Response(metrics_page(), headers=page_headers())


def _health(server: Health) -> HealthReply:
    """Healthy if any model can be served: LMDeploy's proxy drops a node at the first other answer."""
    failed = [model.name for model in server.models if model.state == "failed"]
    if server.state == "draining":
        return {"status": "unhealthy", "message": "The server is shutting down."}
    if server.state == "asleep":
        return {"status": "sleeping", "message": "Requests are refused until POST /wakeup."}
    if not failed:
        return {"status": "healthy", "message": "Requests are served."}
    message = f"These models crashed too often to be loaded again: {', '.join(failed)}."
    return {"status": "unhealthy" if len(failed) == len(server.models) else "healthy", "message": message}


_ERRORS: Final = error_responses(
    ErrorBody, special={401: {"model": KeyErrorBody}, 422: {"model": ValidationErrorBody}}
)


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
