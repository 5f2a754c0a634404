"""What the server needs of this protocol."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

import msgspec
from fastapi import APIRouter
from starlette.middleware import Middleware

from jan_serve.config import Settings
from jan_serve.dialects.dialect import Dialect, Services
from jan_serve.dialects.openai.options import OpenAIOptions
from jan_serve.dialects.openai.outline import LLAMA_PATH, OUTLINE, SHARED_PATH, is_llama_body
from jan_serve.dialects.shared.body_dispatch import BodyDispatch
from jan_serve.generation.service import GenerationService, exact_name, name_or_default
from jan_serve.journal.answers import AnswerTable
from jan_serve.journal.batch_runner import BatchForm

if TYPE_CHECKING:
    from jan_serve.dialects.openai.responses.background import StoredResponses


class OpenAIParts(msgspec.Struct, frozen=True):
    """What the routes work with. answers: made with the first route that needs them. resume_s: see OpenAIOptions."""

    services: Services
    service: GenerationService
    answers: Callable[[], StoredResponses]
    resume_s: float


def openai_dialect(settings: Settings, services: Services) -> Dialect:
    """A configured default model also serves requests that name unknown models."""
    names = name_or_default if settings.model is not None else exact_name
    service = GenerationService(services.models, services.preparer, services.running, names=names)
    options = settings.part(OpenAIOptions)

    @cache
    def answers() -> StoredResponses:
        # Imported late: the wire types of responses are large.
        from jan_serve.dialects.openai.responses.background import StoredResponses
        from jan_serve.dialects.openai.responses.store import ResponseStore

        store = ResponseStore(options.response_store_bytes)
        return StoredResponses(service, services.background, store)

    async def resume() -> None:
        if await AnswerTable(services.background.journal).open_answers():
            await answers().resume()

    services.background.at_start(resume)
    services.batches.register("openai", _batch_form)
    parts = OpenAIParts(services, service, answers, options.resume_s)
    dispatch = Middleware(BodyDispatch, shared=SHARED_PATH, other=LLAMA_PATH, is_other=is_llama_body)

    def router() -> APIRouter:
        from jan_serve.dialects.openai.routes import openai_router

        return openai_router(parts)

    return Dialect(OUTLINE, router, middleware=(dispatch,))


def _batch_form() -> BatchForm:
    from jan_serve.dialects.openai.batches import OpenAIForm

    return OpenAIForm()
