"""What the server needs of this protocol."""

from __future__ import annotations

from fastapi import APIRouter

from jan_serve.config import Settings
from jan_serve.core.request import Watermark
from jan_serve.dialects.dialect import Dialect, Services
from jan_serve.dialects.tgi.limits import GenerateLimits
from jan_serve.dialects.tgi.metrics import TgiMetrics
from jan_serve.dialects.tgi.options import TgiOptions
from jan_serve.dialects.tgi.outline import OUTLINE


def tgi_dialect(settings: Settings, services: Services) -> Dialect:
    """Errors: `{error, error_type}` for values that TGI validates itself, plain text for its framework's refusals."""
    options = settings.part(TgiOptions)
    limits = GenerateLimits(
        max_concurrent_requests=options.tgi_max_concurrent_requests,
        max_best_of=options.tgi_max_best_of,
        max_stop_sequences=options.tgi_max_stop_sequences,
        max_top_n_tokens=options.tgi_max_top_n_tokens,
        max_client_batch_size=options.tgi_max_client_batch_size,
        max_input_tokens=options.tgi_max_input_tokens,
        max_total_tokens=options.tgi_max_total_tokens,
        max_body_bytes=options.tgi_max_body_bytes,
        compute_type=options.tgi_compute_type,
        watermark=Watermark(options.watermark_gamma, options.watermark_delta),
    )
    metrics = TgiMetrics(services.metrics.registry, services.models.snapshot)

    def router() -> APIRouter:
        from jan_serve.dialects.tgi.routes import tgi_router

        return tgi_router(services, limits, metrics)

    return Dialect(OUTLINE, router)
