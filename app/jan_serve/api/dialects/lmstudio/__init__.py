"""LM Studio's list of models, which its clients read before they use OpenAI's routes."""

from __future__ import annotations

from jan_serve.api.dialect import Dialect, Services
from jan_serve.api.dialects.lmstudio.routes import PREFIX, lmstudio_router
from jan_serve.api.shared.default_errors import render_error
from jan_serve.config import Settings


def lmstudio_dialect(_: Settings, services: Services) -> Dialect:
    """Errors are OpenAI's, as on the routes that its clients use otherwise."""
    return Dialect(lmstudio_router(services), errors={PREFIX: render_error})
