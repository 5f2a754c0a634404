"""/health, /ready and /metrics, answered from the front's state without asking an engine."""

from __future__ import annotations

import os
from collections.abc import Callable
from http import HTTPStatus
from typing import Literal

import msgspec
from fastapi import APIRouter
from pydantic import BaseModel
from starlette.responses import Response

from jan_serve import __version__
from jan_serve.api.control_plane import ControlPlane
from jan_serve.api.http.deferred_routes import DeferredRoute
from jan_serve.api.http.replies import json_reply
from jan_serve.api.lifecycle import Lifecycle
from jan_serve.api.metrics import Metrics, page_headers
from jan_serve.api.served_models import ServedModels
from jan_serve.core.self_check import SelfCheck


class ModelHealth(BaseModel):
    """A model that was requested since the start. lost_devices: accelerators lost since an earlier load."""

    name: str
    state: str
    lost_devices: list[str]


class SelfCheckHealth(BaseModel):
    """The newest run of `jan-serve selfcheck` when the server started. at: seconds since 1970. findings: what is worse
    than with the version that it was compared with.
    """

    version: str
    compared_with: str | None
    at: float
    findings: list[str]


class Health(BaseModel):
    """The state of the server. busy: requests are running. degraded: a model failed, or runs without an accelerator
    that was lost. asleep: requests are rejected until it is woken. uptime_s: seconds.
    """

    status: Literal["ok", "draining"]
    state: Literal["ready", "busy", "degraded", "asleep", "draining"]
    version: str
    pid: int
    uptime_s: float
    open_requests: int
    models: list[ModelHealth]
    selfcheck: SelfCheckHealth | None = None


class Readiness(BaseModel):
    """Whether a request would be accepted now, and if not, why."""

    ready: bool
    reason: str | None


def health_of(
    models: ServedModels,
    lifecycle: Lifecycle,
    control: ControlPlane | None = None,
    self_check: SelfCheck | None = None,
) -> Callable[[], Health]:
    """A function that returns the current state. control: None if the server cannot sleep. self_check: the newest."""
    checked = None if self_check is None else SelfCheckHealth(**msgspec.to_builtins(self_check))

    def current() -> Health:
        states = models.snapshot().models
        state = "busy" if lifecycle.open_requests else "ready"
        if any(model.state == "failed" or model.lost_devices for model in states):
            state = "degraded"
        if control is not None and control.is_sleeping:
            state = "asleep"
        return Health(
            status="draining" if lifecycle.draining else "ok",
            state="draining" if lifecycle.draining else state,
            version=__version__,
            pid=os.getpid(),
            uptime_s=round(lifecycle.uptime_s, 3),
            open_requests=lifecycle.open_requests,
            models=[
                ModelHealth(name=model.name, state=model.state, lost_devices=list(model.lost_devices))
                for model in states
            ],
            selfcheck=checked,
        )

    return current


def health_router(
    health_now: Callable[[], Health],
    models: ServedModels,
    metrics: Metrics,
    control: ControlPlane | None = None,
) -> APIRouter:
    """health_now: from `health_of`."""
    router = APIRouter(route_class=DeferredRoute, tags=["Server"])

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
