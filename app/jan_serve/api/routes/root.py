"""The web page, and /health, /ready and /metrics, answered from the front's state without asking an engine."""

from __future__ import annotations

from http import HTTPStatus
from pathlib import Path

from fastapi import APIRouter
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from jan_serve.dialects.dialect import Services
from jan_serve.dialects.health import Health
from jan_serve.http.metrics import page_headers
from jan_serve.http.page_files import Page
from jan_serve.http.paths import ASSETS_PATH, PAGE_PATH
from jan_serve.http.replies import json_reply


class Readiness(BaseModel):
    """Whether a request would be accepted now, and if not, why."""

    ready: bool
    reason: str | None


def health_router(services: Services) -> APIRouter:
    router = APIRouter(tags=["Server"])

    @router.get("/health", response_model=Health, responses={503: {"model": Health}})
    async def health() -> Response:
        """Alive: 200 while requests are served, 503 while the server drains."""
        body = services.health()
        status = HTTPStatus.OK if body.status == "ok" else HTTPStatus.SERVICE_UNAVAILABLE
        return json_reply(body.model_dump(), status)

    @router.get("/ready", response_model=Readiness, responses={503: {"model": Readiness}})
    async def ready() -> Response:
        """200 only if a request would be accepted now."""
        reason = None
        models, control = services.models, services.control
        if control is not None and control.is_sleeping:
            reason = "the server is asleep until POST /wakeup"
        elif failed := [model for model in models.snapshot().models if model.state == "failed"]:
            reason = f"the model `{failed[0].name}` failed"
        elif not await models.models():
            reason = "there is no model"
        status = HTTPStatus.OK if reason is None else HTTPStatus.SERVICE_UNAVAILABLE
        return json_reply({"ready": reason is None, "reason": reason}, status)

    @router.get("/metrics", responses={200: {"content": {"text/plain": {}}}}, response_class=Response)
    async def metrics_page() -> Response:
        """Prometheus text exposition."""
        return Response(services.metrics.page(), headers=page_headers())

    return router


def page_router(folder: Path | None, greeting: str = "") -> APIRouter:
    """The page and its assets: they need no key, because they contain no secrets.

    folder: None if this installation has no page. greeting: for programs, with a 200 that they look for.
    """
    files = Page(folder, greeting)
    router = APIRouter(include_in_schema=False)

    @router.get(PAGE_PATH)
    async def page(request: Request) -> Response:
        return files.index(request)

    @router.get(ASSETS_PATH + "{name}")
    async def asset(request: Request, name: str) -> Response:
        return files.asset(request, name)

    return router
