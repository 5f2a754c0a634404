"""What the server needs of this protocol."""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter

from jan_serve.config import Settings
from jan_serve.dialects.dialect import Dialect, Services
from jan_serve.dialects.openai.paths import rewrite_head

_PATHS: Final = (
    "/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/models", "/v1/responses", "/v1/audio", "/extras",
    "/apply-template", "/infill", "/lora-adapters", "/props",
)  # fmt: skip


def openai_dialect(settings: Settings, services: Services) -> Dialect:
    """A configured default model also serves requests that name unknown models."""

    def router() -> APIRouter:
        from jan_serve.dialects.openai.routes import openai_router

        return openai_router(
            services,
            serves_unknown_names=settings.model is not None,
            response_store_bytes=settings.response_store_bytes,
        )

    return Dialect(router, _PATHS, rewrite_head=rewrite_head, form_paths=("/v1/audio/transcriptions",))
