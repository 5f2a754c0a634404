"""What the server needs of this protocol."""

from __future__ import annotations

from fastapi import APIRouter

from jan_serve.config import Settings
from jan_serve.dialects.dialect import Dialect, Services
from jan_serve.dialects.rerank.errors import render_error
from jan_serve.dialects.rerank.paths import COHERE, PLAIN


def rerank_dialect(_: Settings, services: Services) -> Dialect:
    """Errors are OpenAI's, as llama-server's are, except on Cohere's route."""

    def router() -> APIRouter:
        from jan_serve.dialects.rerank.routes import rerank_router

        return rerank_router(services)

    return Dialect(router, (COHERE, *PLAIN), errors={COHERE: render_error})
