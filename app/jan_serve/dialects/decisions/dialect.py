"""What the server needs of this protocol."""

from __future__ import annotations

from fastapi import APIRouter

from jan_serve.config import Settings
from jan_serve.dialects.dialect import Dialect, Services


def decisions_dialect(_: Settings, services: Services) -> Dialect:
    """Errors are OpenAI's."""

    def router() -> APIRouter:
        from jan_serve.dialects.decisions.routes import decisions_router

        return decisions_router(services)

    return Dialect(router, ("/v1/decide", "/v1/systemone"))
