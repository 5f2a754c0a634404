"""All routes of the OpenAI dialect. The first request to some of them imports these alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from fastapi import APIRouter

from jan_serve.dialects.dialect import Services
from jan_serve.dialects.shared.error_responses import DEFAULT_ERRORS
from jan_serve.generation.service import GenerationService
from jan_serve.http.deferred_routes import DeferredRoutes
from jan_serve.http.json_body import JsonRoute
from jan_serve.journal.files import FileTable

if TYPE_CHECKING:
    from jan_serve.dialects.openai.responses.routes import StoredAnswers

_AddRoutes = Callable[[APIRouter], None]


def openai_router(
    services: Services,
    service: GenerationService,
    answers: Callable[[], StoredAnswers],
    resume_s: float,
) -> APIRouter:
    """answers: made with the first route that needs them. resume_s: see OpenAIOptions."""

    def completions(router: APIRouter) -> None:
        from jan_serve.dialects.openai.completions.routes import add_completion_route

        add_completion_route(router, services, service)

    def chat(router: APIRouter) -> None:
        from jan_serve.dialects.openai.chat.routes import add_chat_route
        from jan_serve.dialects.shared.resumable import ResumableStreams

        add_chat_route(router, services, service, ResumableStreams(resume_s))

    def embeddings(router: APIRouter) -> None:
        from jan_serve.dialects.openai.embeddings import add_embedding_route

        add_embedding_route(router, service)

    def models(router: APIRouter) -> None:
        from jan_serve.dialects.openai.models import add_model_routes

        add_model_routes(router, services)

    def extras(router: APIRouter) -> None:
        from jan_serve.dialects.openai.jan_extras import add_extra_routes

        add_extra_routes(router, services, service)

    def llama_server(router: APIRouter) -> None:
        from jan_serve.dialects.openai.llama_server.routes import add_llama_routes

        add_llama_routes(router, services, service)

    def responses(router: APIRouter) -> None:
        from jan_serve.dialects.openai.responses.routes import add_response_routes

        add_response_routes(router, services, service, answers())

    def transcriptions(router: APIRouter) -> None:
        from jan_serve.dialects.openai.transcriptions import add_transcription_route

        add_transcription_route(router, services, service)

    def batches(router: APIRouter) -> None:
        from jan_serve.dialects.openai.batches.routes import add_batch_routes

        add_batch_routes(router, services.batches, FileTable(services.background.journal))

    router = APIRouter(route_class=JsonRoute)
    router.routes += [
        _deferred("OpenAI V1", completions, "/v1/completions"),
        _deferred("OpenAI V1", chat, "/v1/chat/completions"),
        _deferred("OpenAI V1", embeddings, "/v1/embeddings"),
        _deferred("OpenAI V1", models, "/v1/models"),
        _deferred("Extras", extras, "/extras"),
        _deferred(
            "llama-server",
            llama_server,
            "/llama-server",
            "/apply-template",
            "/completion",
            "/detokenize",
            "/infill",
            "/lora-adapters",
            "/props",
            "/slots",
            "/v1/chat/completions/input_tokens",
        ),
        _deferred("OpenAI V1", responses, "/v1/responses"),
        _deferred("OpenAI V1", transcriptions, "/v1/audio"),
        _deferred("OpenAI V1", batches, "/v1/files", "/v1/batches"),
    ]
    return router


def _deferred(tag: str, add: _AddRoutes, *paths: str) -> DeferredRoutes:
    def make() -> APIRouter:
        router = APIRouter(route_class=JsonRoute, responses=DEFAULT_ERRORS, tags=[tag])
        add(router)
        return router

    return DeferredRoutes(make, paths)
