"""What the server needs of this protocol."""

from __future__ import annotations

from fastapi import APIRouter

from jan_serve.config import Settings
from jan_serve.dialects.dialect import Dialect, Services
from jan_serve.dialects.openai.options import OpenAIOptions
from jan_serve.dialects.openai.outline import OUTLINE


def openai_dialect(settings: Settings, services: Services) -> Dialect:
    """A configured default model also serves requests that name unknown models."""

    def router() -> APIRouter:
        from jan_serve.dialects.openai.routes import openai_router

        return openai_router(
            services,
            serves_unknown_names=settings.model is not None,
            response_store_bytes=settings.part(OpenAIOptions).response_store_bytes,
        )

    return Dialect(OUTLINE, router)
