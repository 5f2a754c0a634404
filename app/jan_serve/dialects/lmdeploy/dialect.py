"""What the server needs of this protocol."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.middleware import Middleware

from jan_serve.config import Settings
from jan_serve.dialects.dialect import Dialect, Services
from jan_serve.dialects.lmdeploy.generate_dispatch import GenerateDispatch, show_both_protocols
from jan_serve.dialects.lmdeploy.metrics import LmdeployMetrics
from jan_serve.dialects.lmdeploy.outline import OUTLINE


def lmdeploy_dialect(_: Settings, services: Services) -> Dialect:
    """Its metrics count the requests of all dialects."""
    metrics = services.metrics
    metrics.observers.append(LmdeployMetrics(metrics.registry, services.models.snapshot).observe)

    def router() -> APIRouter:
        from jan_serve.dialects.lmdeploy.routes import lmdeploy_router

        return lmdeploy_router(services)

    return Dialect(
        OUTLINE, router, middleware=(Middleware(GenerateDispatch),), amend_document=show_both_protocols
    )
