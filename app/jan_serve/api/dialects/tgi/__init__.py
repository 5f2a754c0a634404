"""Text Generation Inference's own routes (3.3.6, with 1.4.2's keys): at the root, and strictly under /tgi."""

from __future__ import annotations

from typing import Final

from jan_serve.api.dialect import Dialect
from jan_serve.api.dialects.tgi.errors import render_error
from jan_serve.api.dialects.tgi.routes import ROOT_PATHS, tgi_router

TGI: Final = Dialect(
    name="tgi", error_prefixes=("/tgi", *ROOT_PATHS), render_error=render_error, router=tgi_router
)
