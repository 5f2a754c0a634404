"""All routes of LMDeploy: under /lmdeploy, and at the root those that no other dialect has."""

from __future__ import annotations

import time
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from jan_serve.core.request import GenerationRequest
from jan_serve.core.transcript import started_s
from jan_serve.dialects.dialect import Services
from jan_serve.dialects.health import Health
from jan_serve.dialects.lmdeploy.chat import ChatRenderer, ChatReply, ChatRequest, chat_request
from jan_serve.dialects.lmdeploy.common import (
    GenerationFields,
    KeyErrorBody,
    ReplyFacts,
    ValidationErrorBody,
    check_bias,
    requested_session,
)
from jan_serve.dialects.lmdeploy.completions import (
    CompletionRenderer,
    CompletionReply,
    CompletionRequest,
    completion_requests,
)
from jan_serve.dialects.lmdeploy.control import add_control_routes
from jan_serve.dialects.lmdeploy.distserve import CacheReply, add_distserve_routes, preserving, with_migration
from jan_serve.dialects.lmdeploy.generate import (
    GenerateRenderer,
    GenerateReply,
    GenerateRequest,
    generate_request,
)
from jan_serve.dialects.lmdeploy.inputs import HealthReply, ModelList, add_embedding_route, add_input_routes
from jan_serve.dialects.lmdeploy.outline import DEPRECATED_CHAT, PREFIX
from jan_serve.dialects.lmdeploy.serving import Serving, Session
from jan_serve.dialects.shared.answers import Renderer, answer
from jan_serve.dialects.shared.documented_errors import documented_errors
from jan_serve.dialects.shared.lmdeploy_forms import ErrorBody, in_band_error, permitted_card
from jan_serve.errors import InvalidRequest
from jan_serve.generation.batch import generate_batch
from jan_serve.http.disconnect import while_connected
from jan_serve.http.json_body import JsonRoute
from jan_serve.http.metrics import page_headers
from jan_serve.http.replies import json_reply
from jan_serve.http.sse import STREAMED


async def send_answer(
    request: Request,
    serving: Serving,
    session: Session,
    body: GenerationFields,
    requests: list[GenerationRequest],
    renderer: Renderer,
) -> Response:
    """Raises errors of the tree, and ClientGone."""
    choices = sum(generation.n for generation in requests)
    requests = with_migration(body, requests, stream=bool(body.stream))
    events = session.run(generate_batch(serving.generation.generate, requests), choices=choices)
    if requests[0].keep_state and serving.control is not None:
        renderer = reply = CacheReply(renderer, session)
        links = serving.control.links
        events = preserving(events, session, links, reply, preserve=bool(body.preserve_cache))
    return await answer(
        request, events, renderer, in_band_error, serving.streams, stream=body.stream, done_after_error=True
    )


def add_generation_routes(router: APIRouter, serving: Serving, prefix: str) -> None:
    @router.post(f"{prefix}/generate", response_model=GenerateReply, responses=STREAMED)
    async def generate(request: Request, body: GenerateRequest) -> Response:
        """Continue a text or token ids with the default model, without a template."""
        generation = generate_request(body)
        session = Session(serving.sessions, requested_session(body.session_id))
        include_stop = generation.stopping.include_stop
        renderer = GenerateRenderer(include_stop=include_stop, logprobs=bool(body.return_logprob))
        return await send_answer(request, serving, session, body, [generation], renderer)

    @router.post(f"{prefix}/v1/chat/completions", response_model=ChatReply, responses=STREAMED)
    async def chat_completions(request: Request, body: ChatRequest) -> Response:
        """Answer the last message of a conversation."""
        generation = chat_request(body)
        bias = generation.sampling.logit_bias
        if bias:
            _, facts = await while_connected(request, serving.generation.facts(generation.model))
            check_bias(bias, facts.n_vocab)
        session = Session(serving.sessions, requested_session(body.session_id))
        head = ReplyFacts(session, started_s(), body.model)
        renderer = ChatRenderer(head, body, generation)
        return await send_answer(request, serving, session, body, [generation], renderer)

    @router.post(f"{prefix}/v1/completions", response_model=CompletionReply, responses=STREAMED)
    async def completions(request: Request, body: CompletionRequest) -> Response:
        """Continue a text, or several."""
        requests = completion_requests(body)
        session = Session(serving.sessions, requested_session(body.session_id))
        head = ReplyFacts(session, started_s(), body.model, shows_session=False)
        renderer = CompletionRenderer(head, body, requests)
        return await send_answer(request, serving, session, body, requests, renderer)


def add_model_route(router: APIRouter, services: Services, prefix: str) -> None:
    @router.get(f"{prefix}/v1/models", response_model=ModelList)
    async def available_models() -> Response:
        """List the available models, each followed by its LoRA adapters as `model:adapter`."""
        created = int(time.time())
        cards = [permitted_card(name, created) for name in await _names(services)]
        return json_reply({"object": "list", "data": cards})


async def _names(services: Services) -> list[str]:
    if services.store is None:
        return [model.name for model in await services.models.models()]
    names: list[str] = []
    for model in await services.store.models():
        names += [model.name, *(f"{model.name}:{adapter}" for adapter in model.adapters)]
    return names


_PAGE: Final[dict[int | str, dict[str, Any]]] = {200: {"content": {"text/plain": {}}}}


def add_state_routes(
    router: APIRouter, health_now: Callable[[], Health], metrics_page: Callable[[], bytes], prefix: str
) -> None:
    @router.get(f"{prefix}/health", response_model=HealthReply, responses={503: {"model": HealthReply}})
    async def health() -> Response:
        """200 while the server serves requests or sleeps. In the form of LMDeploy 0.16."""
        reply = _health(health_now())
        is_alive = reply["status"] in ("healthy", "sleeping")
        return json_reply(reply, HTTPStatus.OK if is_alive else HTTPStatus.SERVICE_UNAVAILABLE)

    @router.get(f"{prefix}/metrics", responses=_PAGE, response_class=Response)
    async def metrics() -> Response:
        """Prometheus text exposition; the same page as at the root."""
        return Response(metrics_page(), headers=page_headers())


def _health(server: Health) -> HealthReply:
    """Healthy if any model can be served: LMDeploy's proxy drops a node at the first other answer."""
    failed = [model.name for model in server.models if model.state == "failed"]
    if server.state == "draining":
        return {"status": "unhealthy", "message": "The server is shutting down."}
    if server.state == "asleep":
        return {"status": "sleeping", "message": "Requests are refused until POST /wakeup."}
    if not failed:
        return {"status": "healthy", "message": "Requests are served."}
    message = f"These models crashed too often to be loaded again: {', '.join(failed)}."
    return {"status": "unhealthy" if len(failed) == len(server.models) else "healthy", "message": message}


_ERRORS: Final = documented_errors(
    ErrorBody, special={401: {"model": KeyErrorBody}, 422: {"model": ValidationErrorBody}}
)


def lmdeploy_router(services: Services) -> APIRouter:
    router = APIRouter(route_class=JsonRoute, responses=_ERRORS, tags=["LMDeploy"])
    ours = Serving(services)
    add_generation_routes(router, ours, PREFIX)
    for prefix in ("", PREFIX):
        add_input_routes(router, ours, prefix)
        _add_deprecated_route(router, prefix)
        if ours.control is not None:
            add_distserve_routes(router, ours, ours.control.links, prefix)
            add_control_routes(router, ours, ours.control, prefix)
    add_embedding_route(router, ours, PREFIX)
    add_model_route(router, services, PREFIX)
    add_state_routes(router, services.health, services.metrics.page, PREFIX)
    return router


def _add_deprecated_route(router: APIRouter, prefix: str) -> None:
    @router.post(f"{prefix}{DEPRECATED_CHAT}", include_in_schema=False)
    async def chat_interactive() -> Response:
        """Rejects LMDeploy's former chat route and names its replacement."""
        raise InvalidRequest(
            f"{DEPRECATED_CHAT} is deprecated: use /v1/chat/completions, whose prefixes are cached."
        )
