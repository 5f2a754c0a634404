"""What the server needs of this protocol."""

from __future__ import annotations

from fastapi import APIRouter

from jan_serve.config import Settings
from jan_serve.dialects.dialect import Dialect, Services
from jan_serve.dialects.lmstudio.head import HEAD


def lmstudio_dialect(_: Settings, services: Services) -> Dialect:
    def router() -> APIRouter:
        from jan_serve.dialects.lmstudio.routes import lmstudio_router

        return lmstudio_router(services)

    return Dialect(HEAD, router)
