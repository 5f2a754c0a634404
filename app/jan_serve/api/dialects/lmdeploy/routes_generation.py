"""LMDeploy's routes that generate: /generate, and the two of OpenAI's API in its form."""

from __future__ import annotations

import time
from enum import Enum
from typing import Any, Final, NamedTuple

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from jan_serve.api.dialects.lmdeploy.answer import ReplyHead
from jan_serve.api.dialects.lmdeploy.chat.parse import chat_request
from jan_serve.api.dialects.lmdeploy.chat.render import ChatAnswer, ChatChunks, ChatForm
from jan_serve.api.dialects.lmdeploy.chat.wire import ChatReply, ChatRequest
from jan_serve.api.dialects.lmdeploy.completions.parse import completion_requests, generate_request
from jan_serve.api.dialects.lmdeploy.completions.render import (
    CompletionAnswer,
    CompletionChunks,
    CompletionForm,
)
from jan_serve.api.dialects.lmdeploy.completions.wire import CompletionReply, CompletionRequest
from jan_serve.api.dialects.lmdeploy.distserve.kv_transfer import CacheFacts, WithCache, migrating, preserving
from jan_serve.api.dialects.lmdeploy.errors import in_band_error
from jan_serve.api.dialects.lmdeploy.generate.render import GenerateAnswer, GenerateChunks, GenerateForm
from jan_serve.api.dialects.lmdeploy.generate.wire import GenerateReply, GenerateRequest
from jan_serve.api.dialects.lmdeploy.parse_common import check_bias, wanted_session
from jan_serve.api.dialects.lmdeploy.serving import Serving
from jan_serve.api.dialects.lmdeploy.sessions import Session
from jan_serve.api.dialects.lmdeploy.wire_common import GenerationFields, SamplingFields
from jan_serve.api.http.disconnect import while_connected
from jan_serve.api.http.sse import SSE_RESPONSE
from jan_serve.api.shared.answers import Chunks, WholeRenderer, answer_stream, answer_whole
from jan_serve.core.request import GenerationRequest
from jan_serve.generation.batch import generate_batch

_TAGS: Final[list[str | Enum]] = ["LMDeploy"]
_STREAMED: Final[dict[int | str, dict[str, Any]]] = {200: {"content": SSE_RESPONSE}}


class _Renderers(NamedTuple):
    """The forms of an answer. whole: None where it is streamed."""

    whole: WholeRenderer | None
    chunks: Chunks


def add_generation_routes(router: APIRouter, serving: Serving, prefix: str) -> None:
    """Add them to the dialect's router."""

    @router.post(f"{prefix}/generate", tags=_TAGS, response_model=GenerateReply, responses=_STREAMED)
    async def generate(request: Request, body: GenerateRequest) -> Response:
        """Continue a text or token ids with the default model, without a template."""
        return await serve_generate(request, body, serving)

    @router.post(f"{prefix}/v1/chat/completions", tags=_TAGS, response_model=ChatReply, responses=_STREAMED)
    async def chat_completions(request: Request, body: ChatRequest) -> Response:
        """Answer the last message of a conversation."""
        return await serve_chat(request, body, serving)

    @router.post(f"{prefix}/v1/completions", tags=_TAGS, response_model=CompletionReply, responses=_STREAMED)
    async def completions(request: Request, body: CompletionRequest) -> Response:
        """Continue a text, or several."""
        return await serve_completions(request, body, serving)


async def serve_generate(request: Request, body: GenerateRequest, serving: Serving) -> Response:
    """POST /generate, also for who shares that path with another dialect. Raises errors of the tree, and ClientGone."""
    generation = generate_request(body)
    session = serving.sessions.create(wanted_session(body.session_id))
    form = GenerateForm(include_stop=generation.stopping.include_stop, logprobs=bool(body.return_logprob))
    renderers = _Renderers(None if body.stream else GenerateAnswer(form), GenerateChunks(form).chunks)
    return await _answer(request, serving, session, body, [generation], renderers)


async def serve_chat(request: Request, body: ChatRequest, serving: Serving) -> Response:
    """POST /v1/chat/completions. Raises as `serve_generate`."""
    generation = chat_request(body)
    await _check_bias(request, serving, generation)
    session = serving.sessions.create(wanted_session(body.session_id))
    head = ReplyHead(session, int(time.time()), body.model)
    form = ChatForm(
        choices=generation.n,
        include_stop=generation.stopping.include_stop,
        token_ids=bool(body.return_token_ids),
        top=None if generation.logprobs is None else body.top_logprobs,
        include_usage=_wants_usage(body),
    )
    renderers = _Renderers(None if body.stream else ChatAnswer(head, form), ChatChunks(head, form).chunks)
    return await _answer(request, serving, session, body, [generation], renderers)


async def serve_completions(request: Request, body: CompletionRequest, serving: Serving) -> Response:
    """POST /v1/completions. Raises as `serve_generate`."""
    requests = completion_requests(body)
    session = serving.sessions.create(wanted_session(body.session_id))
    head = ReplyHead(session, int(time.time()), body.model, shows_session=False)
    form = CompletionForm(
        choices=sum(generation.n for generation in requests),
        include_stop=requests[0].stopping.include_stop,
        token_ids=bool(body.return_token_ids),
        logprobs=requests[0].logprobs is not None,
        include_usage=_wants_usage(body),
    )
    renderers = _Renderers(
        None if body.stream else CompletionAnswer(head, form), CompletionChunks(head, form).chunks
    )
    return await _answer(request, serving, session, body, requests, renderers)


async def _answer(
    request: Request,
    serving: Serving,
    session: Session,
    body: GenerationFields,
    requests: list[GenerationRequest],
    renderers: _Renderers,
) -> Response:
    """As a session."""
    whole = renderers.whole
    choices = sum(generation.n for generation in requests)
    requests = migrating(body, requests, stream=whole is None)
    events = session.run(generate_batch(serving.generation.generate, requests), choices=choices)
    if requests[0].keep_state and serving.control is not None:
        facts = CacheFacts()
        events = preserving(events, session, serving.control.links, facts, preserve=bool(body.preserve_cache))
        whole = whole and WithCache(whole, session, facts)
    if whole is not None:
        return await answer_whole(request, events, whole)
    return await answer_stream(
        request, events, renderers.chunks, in_band_error, serving.streams, done_after_error=True
    )


async def _check_bias(request: Request, serving: Serving, generation: GenerationRequest) -> None:
    bias = generation.sampling.logit_bias
    if bias:
        _, facts = await while_connected(request, serving.generation.facts(generation.model))
        check_bias(bias, facts.n_vocab)


def _wants_usage(body: SamplingFields) -> bool:
    return body.stream_options is not None and body.stream_options.include_usage is True
