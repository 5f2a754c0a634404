"""What the server needs of this protocol."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.middleware import Middleware

from jan_serve.config import Settings
from jan_serve.dialects.dialect import Dialect, Services
from jan_serve.dialects.openai.options import OpenAIOptions
from jan_serve.dialects.openai.outline import LLAMA_PATH, OUTLINE, SHARED_PATH, is_llama_body
from jan_serve.dialects.shared.body_dispatch import BodyDispatch


def openai_dialect(settings: Settings, services: Services) -> Dialect:
    """A configured default model also serves requests that name unknown models."""

    def router() -> APIRouter:
        from jan_serve.dialects.openai.routes import openai_router

        return openai_router(
            services,
            serves_unknown_names=settings.model is not None,
            response_store_bytes=settings.part(OpenAIOptions).response_store_bytes,
        )

    dispatch = Middleware(BodyDispatch, shared=SHARED_PATH, other=LLAMA_PATH, is_other=is_llama_body)
    return Dialect(OUTLINE, router, middleware=(dispatch,))
