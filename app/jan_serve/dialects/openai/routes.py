"""All routes of the OpenAI dialect. The first request to some of them imports these alone."""

from __future__ import annotations

from collections.abc import Callable

from fastapi import APIRouter

from jan_serve.dialects.openai.dialect import OpenAIParts
from jan_serve.dialects.shared.documented_errors import DEFAULT_ERRORS
from jan_serve.http.deferred_routes import DeferredRoutes
from jan_serve.http.json_body import JsonRoute


def openai_router(parts: OpenAIParts) -> APIRouter:
    def completions(router: APIRouter) -> None:
        from jan_serve.dialects.openai.completions import add_routes

        add_routes(router, parts)

    def chat(router: APIRouter) -> None:
        from jan_serve.dialects.openai.chat.routes import add_routes

        add_routes(router, parts)

    def embeddings(router: APIRouter) -> None:
        from jan_serve.dialects.openai.embeddings import add_routes

        add_routes(router, parts)

    def models(router: APIRouter) -> None:
        from jan_serve.dialects.openai.models import add_routes

        add_routes(router, parts)

    def tokens(router: APIRouter) -> None:
        from jan_serve.dialects.openai.tokens import add_routes

        add_routes(router, parts)

    def llama_server(router: APIRouter) -> None:
        from jan_serve.dialects.openai.llama_server import add_routes

        add_routes(router, parts)

    def responses(router: APIRouter) -> None:
        from jan_serve.dialects.openai.responses.routes import add_routes

        add_routes(router, parts)

    def transcriptions(router: APIRouter) -> None:
        from jan_serve.dialects.openai.transcriptions import add_routes

        add_routes(router, parts)

    def batches(router: APIRouter) -> None:
        from jan_serve.dialects.openai.batches import add_routes

        add_routes(router, parts)

    router = APIRouter()
    router.routes += [
        _deferred("OpenAI V1", completions, "/v1/completions"),
        _deferred("OpenAI V1", chat, "/v1/chat/completions"),
        _deferred("OpenAI V1", embeddings, "/v1/embeddings"),
        _deferred("OpenAI V1", models, "/v1/models"),
        _deferred("Extras", tokens, "/extras"),
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


def _deferred(tag: str, add: Callable[[APIRouter], None], *paths: str) -> DeferredRoutes:
    """tag: of the routes in the document. paths: each of them is at one of these or below it."""

    def make() -> APIRouter:
        router = APIRouter(route_class=JsonRoute, responses=DEFAULT_ERRORS, tags=[tag])
        add(router)
        return router

    return DeferredRoutes(make, paths)
