"""POST /v1/chat/completions, /v1/completions and /generate:

the requests of a call run as a session, and the answer is sent whole or as a stream.
"""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from jan_serve.core.request import GenerationRequest
from jan_serve.core.transcript import started_s
from jan_serve.dialects.lmdeploy.chat.parse import chat_request
from jan_serve.dialects.lmdeploy.chat.render import ChatForm, ChatRenderer
from jan_serve.dialects.lmdeploy.chat.wire import ChatReply, ChatRequest
from jan_serve.dialects.lmdeploy.completions import (
    CompletionForm,
    CompletionRenderer,
    CompletionReply,
    CompletionRequest,
    completion_requests,
)
from jan_serve.dialects.lmdeploy.distserve.kv_transfer import (
    CacheReply,
    PreservedCache,
    preserving,
    with_migration,
)
from jan_serve.dialects.lmdeploy.generate import (
    GenerateRenderer,
    GenerateReply,
    GenerateRequest,
    generate_request,
)
from jan_serve.dialects.lmdeploy.parse_common import check_bias, requested_session, wants_usage
from jan_serve.dialects.lmdeploy.render_common import ReplyFacts
from jan_serve.dialects.lmdeploy.serving import LmdeployServices, Session
from jan_serve.dialects.lmdeploy.wire_common import GenerationFields
from jan_serve.dialects.shared.answers import Renderer, answer
from jan_serve.dialects.shared.lmdeploy_forms import in_band_error
from jan_serve.generation.batch import generate_batch
from jan_serve.http.disconnect import while_connected
from jan_serve.http.sse import STREAMED


async def send_answer(
    request: Request,
    services: LmdeployServices,
    session: Session,
    body: GenerationFields,
    requests: list[GenerationRequest],
    renderer: Renderer,
) -> Response:
    """Raises errors of the tree, and ClientGone."""
    choices = sum(generation.n for generation in requests)
    requests = with_migration(body, requests, stream=bool(body.stream))
    events = session.run(generate_batch(services.generation.generate, requests), choices=choices)
    if requests[0].keep_state and services.control is not None:
        cache = PreservedCache()
        links = services.control.links
        events = preserving(events, session, links, cache, preserve=bool(body.preserve_cache))
        renderer = CacheReply(renderer, session, cache)
    return await answer(
        request, events, renderer, in_band_error, services.streams, stream=body.stream, done_after_error=True
    )


def add_generation_routes(router: APIRouter, services: LmdeployServices, prefix: str) -> None:
    @router.post(f"{prefix}/generate", response_model=GenerateReply, responses=STREAMED)
    async def generate(request: Request, body: GenerateRequest) -> Response:
        """Continue a text or token ids with the default model, without a template."""
        generation = generate_request(body)
        session = services.sessions.create(requested_session(body.session_id))
        renderer = GenerateRenderer(
            include_stop=generation.stopping.include_stop, logprobs=bool(body.return_logprob)
        )
        return await send_answer(request, services, session, body, [generation], renderer)

    @router.post(f"{prefix}/v1/chat/completions", response_model=ChatReply, responses=STREAMED)
    async def chat_completions(request: Request, body: ChatRequest) -> Response:
        """Answer the last message of a conversation."""
        generation = chat_request(body)
        bias = generation.sampling.logit_bias
        if bias:
            _, facts = await while_connected(request, services.generation.facts(generation.model))
            check_bias(bias, facts.n_vocab)
        session = services.sessions.create(requested_session(body.session_id))
        head = ReplyFacts(session, started_s(), body.model)
        form = ChatForm(
            choices=generation.n,
            include_stop=generation.stopping.include_stop,
            token_ids=bool(body.return_token_ids),
            top=None if generation.logprobs is None else body.top_logprobs,
            include_usage=wants_usage(body),
        )
        return await send_answer(request, services, session, body, [generation], ChatRenderer(head, form))

    @router.post(f"{prefix}/v1/completions", response_model=CompletionReply, responses=STREAMED)
    async def completions(request: Request, body: CompletionRequest) -> Response:
        """Continue a text, or several."""
        requests = completion_requests(body)
        session = services.sessions.create(requested_session(body.session_id))
        head = ReplyFacts(session, started_s(), body.model, shows_session=False)
        form = CompletionForm(
            choices=sum(generation.n for generation in requests),
            include_stop=requests[0].stopping.include_stop,
            token_ids=bool(body.return_token_ids),
            logprobs=requests[0].logprobs is not None,
            include_usage=wants_usage(body),
        )
        return await send_answer(request, services, session, body, requests, CompletionRenderer(head, form))
