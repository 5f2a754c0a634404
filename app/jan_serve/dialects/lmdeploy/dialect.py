"""What the server needs of this protocol."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.middleware import Middleware

from jan_serve.config import Settings
from jan_serve.dialects.dialect import Dialect, Services
from jan_serve.dialects.lmdeploy.generate.dispatch import GenerateDispatch
from jan_serve.dialects.lmdeploy.generate.document import show_both_protocols
from jan_serve.dialects.lmdeploy.metrics import LmdeployMetrics
from jan_serve.dialects.lmdeploy.paths import PREFIX, ROOT_PATHS
from jan_serve.dialects.shared.flat_errors import render_error


def lmdeploy_dialect(_: Settings, services: Services) -> Dialect:
    """Its metrics count the requests of all dialects."""
    metrics = services.metrics
    metrics.observers.append(LmdeployMetrics(metrics.registry, services.models.snapshot).observe)
    state_paths = (f"{PREFIX}/health", f"{PREFIX}/metrics")

    def router() -> APIRouter:
        from jan_serve.dialects.lmdeploy.routes import lmdeploy_router

        return lmdeploy_router(services)

    return Dialect(
        router,
        (PREFIX, *ROOT_PATHS),
        errors=dict.fromkeys((PREFIX, *ROOT_PATHS), render_error),
        middleware=(Middleware(GenerateDispatch),),
        open_paths=(f"{PREFIX}/health",),
        probe_paths=state_paths,
        drain_paths=state_paths,
        amend_document=show_both_protocols,
    )
