"""What the server needs of this protocol."""

from __future__ import annotations

from fastapi import APIRouter

from jan_serve.config import Settings
from jan_serve.dialects.dialect import Dialect, Services
from jan_serve.dialects.lmstudio.paths import PREFIX
from jan_serve.dialects.shared.default_errors import render_error


def lmstudio_dialect(_: Settings, services: Services) -> Dialect:
    """Errors are OpenAI's, as on the routes that its clients use otherwise."""

    def router() -> APIRouter:
        from jan_serve.dialects.lmstudio.routes import lmstudio_router

        return lmstudio_router(services)

    return Dialect(router, (PREFIX,), errors={PREFIX: render_error})
