"""Text Generation Inference's own routes (3.3.6, with 1.4.2's keys): at the root, and strictly under /tgi."""

from __future__ import annotations

from typing import Final

from jan_serve.api.dialect import Dialect
from jan_serve.api.dialects.tgi.errors import render_error
from jan_serve.api.dialects.tgi.routes import OPEN_PATHS, PREFIX, ROOT_PATHS, tgi_router

TGI: Final = Dialect(
    name="tgi",
    error_prefixes=(PREFIX, *ROOT_PATHS),
    render_error=render_error,
    router=tgi_router,
    open_paths=OPEN_PATHS,
)
"""TGI's errors: `{error, error_type}` for what it validates itself, plain text for what its framework refuses."""
