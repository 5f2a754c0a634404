"""What the server needs of this protocol."""

from __future__ import annotations

from fastapi import APIRouter

from jan_serve.config import Settings
from jan_serve.dialects.dialect import Dialect, Services
from jan_serve.dialects.tgi.metrics import TgiMetrics
from jan_serve.dialects.tgi.options import TgiOptions
from jan_serve.dialects.tgi.outline import OUTLINE


def tgi_dialect(settings: Settings, services: Services) -> Dialect:
    """Errors: `{error, error_type}` for values that TGI validates itself, plain text for its framework's refusals."""
    metrics = TgiMetrics(services.metrics.registry, services.models.snapshot)

    def router() -> APIRouter:
        from jan_serve.dialects.tgi.routes import tgi_router

        return tgi_router(services, settings.part(TgiOptions), metrics)

    return Dialect(OUTLINE, router)
