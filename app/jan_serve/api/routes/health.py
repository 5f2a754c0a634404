"""/health, /ready and /metrics, answered from the front's state without asking an engine."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus

from fastapi import APIRouter
from pydantic import BaseModel
from starlette.responses import Response

from jan_serve.dialects.health import Health
from jan_serve.dialects.ports import ControlPlane, ServedModels
from jan_serve.http.metrics import Metrics, page_headers
from jan_serve.http.replies import json_reply


class Readiness(BaseModel):
    """Whether a request would be accepted now, and if not, why."""

    ready: bool
    reason: str | None


def health_router(
    health_now: Callable[[], Health],
    models: ServedModels,
    metrics: Metrics,
    control: ControlPlane | None = None,
) -> APIRouter:
    """health_now: from `health_of`."""
    router = APIRouter(tags=["Server"])

    @router.get("/health", response_model=Health, responses={503: {"model": Health}})
    async def health() -> Response:
        """Alive: 200 while requests are served, 503 while the server drains."""
        body = health_now()
        draining = body.status == "draining"
        status = HTTPStatus.SERVICE_UNAVAILABLE if draining else HTTPStatus.OK
        return json_reply(body.model_dump(), status)

    @router.get("/ready", response_model=Readiness, responses={503: {"model": Readiness}})
    async def ready() -> Response:
        """200 only if a request would be accepted now."""
        if control is not None and control.is_sleeping:
            reason = "the server is asleep until POST /wakeup"
            return json_reply({"ready": False, "reason": reason}, HTTPStatus.SERVICE_UNAVAILABLE)
        failed = [model for model in models.snapshot().models if model.state == "failed"]
        if failed:
            reason = f"the model `{failed[0].name}` failed"
            return json_reply({"ready": False, "reason": reason}, HTTPStatus.SERVICE_UNAVAILABLE)
        if not await models.models():
            return json_reply({"ready": False, "reason": "there is no model"}, HTTPStatus.SERVICE_UNAVAILABLE)
        return json_reply({"ready": True, "reason": None})

    @router.get("/metrics", responses={200: {"content": {"text/plain": {}}}}, response_class=Response)
    async def metrics_page() -> Response:
        """Prometheus text exposition."""
        return Response(metrics.page(), headers=page_headers())

    return router
