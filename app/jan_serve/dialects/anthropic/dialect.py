"""What the server needs of this protocol."""

from __future__ import annotations

from fastapi import APIRouter

from jan_serve.config import Settings
from jan_serve.dialects.anthropic.options import AnthropicOptions
from jan_serve.dialects.anthropic.outline import OUTLINE
from jan_serve.dialects.dialect import Dialect, Services
from jan_serve.journal.batch_runner import BatchForm


def anthropic_dialect(settings: Settings, services: Services) -> Dialect:
    """A configured default model also serves requests that name unknown models."""

    def router() -> APIRouter:
        from jan_serve.dialects.anthropic.routes import anthropic_router

        return anthropic_router(
            services,
            serves_unknown_names=settings.model is not None,
            strip_billing_line=settings.part(AnthropicOptions).strip_billing_line,
        )

    services.batches.register("anthropic", _batch_form)
    return Dialect(OUTLINE, router)


def _batch_form() -> BatchForm:
    from jan_serve.dialects.anthropic.batches import AnthropicForm

    return AnthropicForm()
