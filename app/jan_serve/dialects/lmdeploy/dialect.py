"""What the server needs of this protocol."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.middleware import Middleware

from jan_serve.config import Settings
from jan_serve.dialects.dialect import Dialect, Services
from jan_serve.dialects.lmdeploy.generate_dispatch import (
    LMDEPLOY_PATH,
    SHARED_PATH,
    is_lmdeploy_body,
    show_both_protocols,
)
from jan_serve.dialects.lmdeploy.metrics import LmdeployMetrics
from jan_serve.dialects.lmdeploy.outline import OUTLINE
from jan_serve.dialects.shared.body_dispatch import BodyDispatch


def lmdeploy_dialect(_: Settings, services: Services) -> Dialect:
    """Its metrics count the requests of all dialects."""
    metrics = services.metrics
    metrics.observers.append(LmdeployMetrics(metrics.registry, services.models.snapshot).observe)

    def router() -> APIRouter:
        from jan_serve.dialects.lmdeploy.routes import lmdeploy_router

        return lmdeploy_router(services)

    dispatch = Middleware(BodyDispatch, shared=SHARED_PATH, other=LMDEPLOY_PATH, is_other=is_lmdeploy_body)
    return Dialect(OUTLINE, router, middleware=(dispatch,), amend_document=show_both_protocols)
