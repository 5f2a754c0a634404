"""What the server needs of this protocol. The first request to some of its routes imports these alone."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from importlib import import_module
from typing import TYPE_CHECKING, Final

import msgspec
from fastapi import APIRouter
from starlette.middleware import Middleware

from jan_serve.config import Settings
from jan_serve.dialects.dialect import Dialect, Services
from jan_serve.dialects.openai.options import OpenAIOptions
from jan_serve.dialects.openai.outline import LLAMA_PATH, OUTLINE, SHARED_PATH, is_llama_body
from jan_serve.dialects.shared.body_dispatch import BodyDispatch
from jan_serve.generation.service import GenerationService, exact_name, name_or_default
from jan_serve.http.deferred_routes import DeferredRoutes
from jan_serve.journal.answers import AnswerTable
from jan_serve.journal.batch_runner import BatchForm

if TYPE_CHECKING:
    from jan_serve.dialects.openai.responses.background import StoredResponses

_GROUPS: Final = (
    ("OpenAI V1", "completions", ("/v1/completions",)),
    ("OpenAI V1", "chat.routes", ("/v1/chat/completions",)),
    ("OpenAI V1", "embeddings", ("/v1/embeddings",)),
    ("OpenAI V1", "models", ("/v1/models",)),
    ("Extras", "tokens", ("/extras",)),
    (
        "llama-server",
        "llama_server",
        (
            *("/llama-server", "/apply-template", "/completion", "/detokenize", "/infill", "/lora-adapters"),
            *("/props", "/slots", "/v1/chat/completions/input_tokens"),
        ),
    ),
    ("OpenAI V1", "responses.routes", ("/v1/responses",)),
    ("OpenAI V1", "transcriptions", ("/v1/audio",)),
    ("OpenAI V1", "batches", ("/v1/files", "/v1/batches")),
)
"""Routes by their tags in the document: modules of this package whose `add_routes` adds them, and where they are."""


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
    return Dialect(OUTLINE, partial(_router, parts), middleware=(dispatch,))


def _router(parts: OpenAIParts) -> APIRouter:
    router = APIRouter()
    router.routes += [DeferredRoutes(partial(_group, parts, *names), paths) for *names, paths in _GROUPS]
    return router


def _group(parts: OpenAIParts, tag: str, module: str) -> APIRouter:
    from jan_serve.dialects.shared.documented_errors import DEFAULT_ERRORS
    from jan_serve.http.json_body import JsonRoute

    router = APIRouter(route_class=JsonRoute, responses=DEFAULT_ERRORS, tags=[tag])
    import_module(f"jan_serve.dialects.openai.{module}").add_routes(router, parts)
    return router


def _batch_form() -> BatchForm:
    from jan_serve.dialects.openai.batches import OpenAIForm

    return OpenAIForm()
