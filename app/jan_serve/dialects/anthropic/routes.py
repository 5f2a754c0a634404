"""All routes of the Anthropic dialect: /v1/messages, and /v1/models for requests with `anthropic-version`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Annotated, Final

import msgspec
from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from jan_serve.core.models import ListedModel, ModelStatus
from jan_serve.core.request import ChatPrompt
from jan_serve.core.transcript import random_hex
from jan_serve.dialects.anthropic.batches import add_batch_routes
from jan_serve.dialects.anthropic.claude_clients import names_for, names_or_default
from jan_serve.dialects.anthropic.errors import REQUEST_ID_HEADER, AnthropicError, error_body
from jan_serve.dialects.anthropic.messages.parse import chat_prompt, message_request, shows_thoughts
from jan_serve.dialects.anthropic.messages.render import PING, MessageEvents
from jan_serve.dialects.anthropic.messages.wire import (
    CountTokensRequest,
    CreateMessageRequest,
    MessageBody,
    TokenCount,
)
from jan_serve.dialects.anthropic.model_pages import ModelInfo, ModelPage, page
from jan_serve.dialects.anthropic.outline import PREFIX
from jan_serve.dialects.dialect import Services
from jan_serve.dialects.shared import limits
from jan_serve.dialects.shared.answers import answer
from jan_serve.dialects.shared.documented_errors import documented_errors
from jan_serve.dialects.shared.model_cards import context_length, unknown_model
from jan_serve.generation.service import GenerationService
from jan_serve.http.disconnect import while_connected
from jan_serve.http.errors import Problem
from jan_serve.http.json_body import JsonRoute
from jan_serve.http.replies import json_reply, named_frame
from jan_serve.http.request_record import record_of
from jan_serve.http.sse import STREAMED
from jan_serve.journal.files import FileTable

_ACCEPTED: Final = ("claude", "anthropic")
"""Claude Code's picker takes ids that begin so (CLAUDE_CODE_ENABLE_GATEWAY_MODEL_DISCOVERY=1)."""


def model_infos(models: Sequence[ListedModel], states: Iterable[ModelStatus]) -> list[ModelInfo]:
    """The models, their aliases that Claude Code's picker accepts, and their LoRA adapters as `model:adapter`."""
    by_name = {state.name: state for state in states}
    infos: list[ModelInfo] = []
    for model in models:
        length = context_length(model, by_name.get(model.name))
        names = [model.name, *(f"{model.name}:{adapter}" for adapter in model.adapters)]
        own, *adapters = (_info(name, model.modified_at, length) for name in names)
        infos.append(own)
        for alias in model.aliases:
            if alias.lower().startswith(_ACCEPTED):
                infos.append({**own, "id": alias})
        infos += adapters
    return infos


def aliases_of(models: Iterable[ListedModel]) -> dict[str, str]:
    """Names of models and of their adapters by alias."""
    return {
        alias + suffix: model.name + suffix
        for model in models
        for alias in model.aliases
        for suffix in ("", *(f":{adapter}" for adapter in model.adapters))
    }


def find_info(name: str, infos: Sequence[ModelInfo], aliases: dict[str, str]) -> ModelInfo | None:
    """A model found by name or alias, or by the family of a Claude's name. aliases: names of models by alias."""
    by_id = {info["id"]: info for info in infos}
    for candidate in names_for(name):
        found = by_id.get(aliases.get(candidate, candidate))
        if found is not None:
            return found
    return None


def _info(name: str, modified_at: int = 0, length: int | None = None) -> ModelInfo:
    return {
        "type": "model",
        "id": name,
        "display_name": name,
        "created_at": datetime.fromtimestamp(modified_at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "lifecycle": "active",
        "max_input_tokens": length,
        "max_tokens": length,
    }


def add_model_routes(router: APIRouter, services: Services, prefix: str) -> None:
    async def known() -> tuple[list[ModelInfo], dict[str, str]]:
        """The models, and aliases to their names."""
        if services.store is None:
            return [_info(model.name) for model in await services.models.models()], {}
        models = await services.store.models()
        return model_infos(models, services.models.snapshot().models), aliases_of(models)

    @router.get(prefix + "/v1/models", summary="Models", response_model=ModelPage)
    async def get_models(
        limit: Annotated[int, Query(ge=1, le=limits.MAX_PAGE)] = 20,
        after_id: str | None = None,
        before_id: str | None = None,
    ) -> Response:
        """List the available models. Also at `/v1/models`, for requests with the header `anthropic-version`."""
        infos, _ = await known()
        return json_reply(page(infos, limit, after_id, before_id))

    @router.get(prefix + "/v1/models/{name:path}", summary="Model", response_model=ModelInfo)
    async def get_model(name: str) -> Response:
        """Get a model by name or alias. Also at `/v1/models/{name}`, for requests with `anthropic-version`."""
        infos, aliases = await known()
        found = find_info(name, infos, aliases)
        if found is None:
            raise await unknown_model(name, services.store)
        return json_reply(found)


_ID_BYTES = 12


def add_message_routes(
    router: APIRouter, services: Services, service: GenerationService, *, strip_billing_line: bool
) -> None:
    streams = msgspec.structs.replace(services.streams, ping=PING)

    @router.post("/v1/messages", summary="Message", response_model=MessageBody, responses=STREAMED)
    async def create_message(request: Request, body: CreateMessageRequest) -> Response:
        """Continue a conversation, in the form of Anthropic's Messages API."""
        events = service.generate(message_request(body, strip_billing_line=strip_billing_line))
        message_id = f"msg_{random_hex(_ID_BYTES)}"
        renderer = MessageEvents(message_id, body.model, shows_thoughts=shows_thoughts(body))
        request_id = record_of(request.scope).request_id

        def render_error(problem: Problem) -> AnthropicError:
            return error_body(msgspec.structs.replace(problem, request_id=request_id))

        response = await answer(
            request, events, renderer, render_error, streams, stream=body.stream, done=b"", framed=named_frame
        )
        response.headers[REQUEST_ID_HEADER] = request_id
        return response

    async def count(model_name: str, prompt: ChatPrompt) -> int:
        async with service.open(model_name or None) as model:
            return await model.count(prompt, model_name or None)

    @router.post("/v1/messages/count_tokens", summary="Count tokens", response_model=TokenCount)
    async def count_tokens(request: Request, body: CountTokensRequest) -> Response:
        """Count the tokens of the prompt, including tools. Loads the model."""
        record = record_of(request.scope)
        prompt, record.warnings = chat_prompt(body, strip_billing_line=strip_billing_line)
        tokens = await while_connected(request, count(body.model, prompt))
        return json_reply({"input_tokens": tokens}, headers={REQUEST_ID_HEADER: record.request_id})


_ERRORS: Final = documented_errors(AnthropicError, (400, 401, 403, 404, 413, 415, 500, 504, 529))


def anthropic_router(
    services: Services, *, serves_unknown_names: bool, strip_billing_line: bool
) -> APIRouter:
    """serves_unknown_names: the default model answers for models that do not exist. strip_billing_line: see
    `billing_line`."""
    router = APIRouter(route_class=JsonRoute, responses=_ERRORS, tags=["Anthropic"])
    names = names_or_default if serves_unknown_names else names_for
    service = GenerationService(services.models, services.preparer, services.running, names=names)
    add_message_routes(router, services, service, strip_billing_line=strip_billing_line)
    add_batch_routes(router, services.batches, FileTable(services.background.journal))
    add_model_routes(router, services, PREFIX)
    return router
