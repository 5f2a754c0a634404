"""What the server needs of this protocol."""

from __future__ import annotations

from fastapi import APIRouter

from jan_serve.config import Settings
from jan_serve.dialects.dialect import Dialect, Services
from jan_serve.dialects.ollama.head import HEAD


def ollama_dialect(_: Settings, services: Services) -> Dialect:
    """Its clients often send no Content-Type, and look for the greeting at `/`."""

    def router() -> APIRouter:
        from jan_serve.dialects.ollama.routes import ollama_router

        return ollama_router(services)

    return Dialect(HEAD, router)
