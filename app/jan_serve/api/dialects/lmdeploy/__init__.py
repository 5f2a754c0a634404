"""LMDeploy's api_server (0.12.1), strictly under /lmdeploy; at the root the routes that it alone has."""

from __future__ import annotations

from typing import Final

from jan_serve.api.dialect import Dialect
from jan_serve.api.dialects.lmdeploy.errors import render_error
from jan_serve.api.dialects.lmdeploy.metrics import LmdeployMetrics
from jan_serve.api.dialects.lmdeploy.routes import PREFIX, ROOT_PATHS, lmdeploy_router

LMDEPLOY: Final = Dialect(
    name="lmdeploy",
    error_prefixes=(PREFIX, *ROOT_PATHS),
    render_error=render_error,
    router=lmdeploy_router,
    metrics=LmdeployMetrics,
    open_paths=(f"{PREFIX}/health",),
)
