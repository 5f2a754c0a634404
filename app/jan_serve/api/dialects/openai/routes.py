"""All routes of the OpenAI dialect."""

from __future__ import annotations

from fastapi import APIRouter

from jan_serve.api.dialect import Services
from jan_serve.api.dialects.openai.chat.routes import add_chat_route
from jan_serve.api.dialects.openai.completions.routes import add_completion_route
from jan_serve.api.dialects.openai.embeddings.routes import add_embedding_route
from jan_serve.api.dialects.openai.jan_extras.routes import add_extra_routes
from jan_serve.api.dialects.openai.jan_extras.routes_models import add_model_routes
from jan_serve.api.dialects.openai.llama_server.routes import add_llama_routes
from jan_serve.api.http.deferred_routes import DeferredRoutes
from jan_serve.api.http.json_body import JsonRoute
from jan_serve.api.shared.default_errors import ERROR_RESPONSES
from jan_serve.generation.leases import DefaultingLeases


def openai_router(services: Services, *, serves_unknown_names: bool, response_store_bytes: int) -> APIRouter:
    """serves_unknown_names: the default model answers for models that do not exist."""
    router = APIRouter(route_class=JsonRoute, responses=ERROR_RESPONSES)
    leases = DefaultingLeases(services.models) if serves_unknown_names else services.models
    add_completion_route(router, services, leases)
    add_chat_route(router, services, leases)
    add_embedding_route(router, services, leases)
    add_model_routes(router, services)
    add_extra_routes(router, services, leases)
    add_llama_routes(router, services, leases)

    def responses() -> APIRouter:
        from jan_serve.api.dialects.openai.responses.routes import add_response_routes
        from jan_serve.api.dialects.openai.transcriptions.routes import add_transcription_route

        router = APIRouter(route_class=JsonRoute, responses=ERROR_RESPONSES)
        add_response_routes(router, services, leases, response_store_bytes)
        add_transcription_route(router, services, leases)
        return router

    router.routes.append(DeferredRoutes(responses))
    return router
