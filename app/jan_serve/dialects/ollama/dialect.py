"""What the server needs of this protocol."""

from __future__ import annotations

from fastapi import APIRouter

from jan_serve.config import Settings
from jan_serve.dialects.dialect import Dialect, Services
from jan_serve.dialects.ollama.errors import render_error
from jan_serve.dialects.ollama.paths import GREETING, PREFIX, UPLOADS


def ollama_dialect(_: Settings, services: Services) -> Dialect:
    """Its clients often send no Content-Type, and look for the greeting at `/`."""

    def router() -> APIRouter:
        from jan_serve.dialects.ollama.routes import ollama_router

        return ollama_router(services)

    return Dialect(
        router,
        (PREFIX,),
        errors={PREFIX: render_error},
        greeting=GREETING,
        upload_paths=(UPLOADS,),
        head_paths=(UPLOADS,),
    )
