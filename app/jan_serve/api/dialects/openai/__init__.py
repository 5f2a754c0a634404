"""OpenAI's API as Jan 0.3.14 serves it (llama-cpp-python's server): /v1/* and /extras/* at the root."""

from __future__ import annotations

from jan_serve.api.dialect import Dialect, Services
from jan_serve.api.dialects.openai.routes import openai_router
from jan_serve.config import Settings


def openai_dialect(settings: Settings, services: Services) -> Dialect:
    """With a configured default model, that model also serves requests for unknown models."""
    return Dialect(
        openai_router(
            services,
            serves_unknown_names=settings.model is not None,
            response_store_bytes=settings.response_store_bytes,
        )
    )
