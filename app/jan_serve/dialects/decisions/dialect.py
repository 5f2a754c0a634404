"""What the server needs of this protocol."""

from __future__ import annotations

from fastapi import APIRouter

from jan_serve.config import Settings
from jan_serve.dialects.decisions.head import HEAD
from jan_serve.dialects.dialect import Dialect, Services


def decisions_dialect(_: Settings, services: Services) -> Dialect:
    def router() -> APIRouter:
        from jan_serve.dialects.decisions.routes import decisions_router

        return decisions_router(services)

    return Dialect(HEAD, router)
