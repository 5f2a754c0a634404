"""Jan's routes: each validates its wire type, hands core values to `generation`, and picks a renderer."""

from __future__ import annotations

import time
import uuid
from typing import Any, Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from jan_serve.api.dialect import Services
from jan_serve.api.dialects.openai.chat import wire as wire_chat
from jan_serve.api.dialects.openai.chat.parse import asks_in_older_form, chat_request
from jan_serve.api.dialects.openai.chat.render import ChatAnswer, ChatChunks, ChatForm
from jan_serve.api.dialects.openai.completions import wire as wire_completion
from jan_serve.api.dialects.openai.completions.parse import completion_requests, prompt_items
from jan_serve.api.dialects.openai.completions.render import (
    CompletionAnswer,
    CompletionChunks,
    CompletionForm,
)
from jan_serve.api.dialects.openai.jan_extras import wire
from jan_serve.api.dialects.openai.jan_extras.routes_grammar import add_grammar_route
from jan_serve.api.dialects.openai.jan_extras.routes_models import add_model_routes
from jan_serve.api.dialects.openai.llama_server.routes import add_llama_routes
from jan_serve.api.dialects.openai.parse_common import require
from jan_serve.api.dialects.openai.reply_head import ReplyHead
from jan_serve.api.dialects.openai.responses.routes import add_response_routes
from jan_serve.api.http.disconnect import while_connected
from jan_serve.api.http.json_body import JsonRoute
from jan_serve.api.http.replies import json_reply
from jan_serve.api.http.request_record import record_of
from jan_serve.api.http.sse import SSE_RESPONSE
from jan_serve.api.shared.answers import answer_stream, answer_whole
from jan_serve.api.shared.default_errors import ERROR_RESPONSES, error_body
from jan_serve.api.shared.durations import keep_alive_s
from jan_serve.api.shared.embedding_list import embedding_inputs, embedding_list
from jan_serve.api.shared.wire_types import MAX_INT
from jan_serve.errors import InvalidRequest
from jan_serve.generation.batch import generate_batch
from jan_serve.generation.embeddings import EmbeddingService
from jan_serve.generation.leases import DefaultingLeases
from jan_serve.generation.ports import ModelLeases
from jan_serve.generation.service import GenerationService

_STREAMED: Final[dict[int | str, dict[str, Any]]] = {**ERROR_RESPONSES, 200: {"content": SSE_RESPONSE}}


def openai_router(services: Services, *, serves_unknown_names: bool, response_store_bytes: int) -> APIRouter:
    """serves_unknown_names: the default model answers for models that are not here."""
    router = APIRouter(route_class=JsonRoute, responses=ERROR_RESPONSES)
    leases = DefaultingLeases(services.models) if serves_unknown_names else services.models
    _generation_routes(router, services, leases)
    _embedding_route(router, EmbeddingService(leases, services.running))
    add_model_routes(router, services)
    _token_routes(router, GenerationService(leases, services.preparer, services.running))
    add_grammar_route(router, services.preparer)
    add_llama_routes(router, services, leases)
    add_response_routes(router, services, leases, response_store_bytes)
    return router


def _generation_routes(router: APIRouter, services: Services, leases: ModelLeases) -> None:
    service = GenerationService(leases, services.preparer, services.running)
    streams = services.streams

    @router.post(
        "/v1/completions",
        tags=["OpenAI V1"],
        summary="Completion",
        response_model=wire_completion.CreateCompletionResponse,
        responses=_STREAMED,
    )
    async def create_completion(request: Request, body: wire_completion.CreateCompletionRequest) -> Response:
        """Continue a text, or several."""
        requests = completion_requests(body)
        head = ReplyHead(f"cmpl-{uuid.uuid4()}", int(time.time()), body.model)
        prompts: list[str] = []
        for item in prompt_items(body) if body.echo or body.logprobs is not None else ():
            if isinstance(item, tuple):
                item = await while_connected(request, service.detokenize(requests[0].model, item))
            prompts.append(item)
        form = CompletionForm(prompts, requests[0].n, body.echo, body.suffix, body.logprobs is not None)
        events = generate_batch(service.generate, requests)
        if not body.stream:
            return await answer_whole(request, events, CompletionAnswer(head, form))
        chunks = CompletionChunks(head, form, include_usage=_wants_usage(body))
        return await answer_stream(request, events, chunks.chunks, error_body, streams)

    @router.post(
        "/v1/chat/completions",
        tags=["OpenAI V1"],
        summary="Chat",
        response_model=wire_chat.CreateChatCompletionResponse,
        responses=_STREAMED,
    )
    async def create_chat_completion(
        request: Request, body: wire_chat.CreateChatCompletionRequest
    ) -> Response:
        """Answer the last message of a conversation."""
        generation = chat_request(body)
        head = ReplyHead(f"chatcmpl-{uuid.uuid4()}", int(time.time()), body.model)
        events = generate_batch(service.generate, [generation])
        form = ChatForm(
            n=generation.n, logprobs=generation.logprobs is not None, functions=asks_in_older_form(body)
        )
        if not body.stream:
            return await answer_whole(request, events, ChatAnswer(head, form))
        chunks = ChatChunks(head, form, include_usage=_wants_usage(body))
        return await answer_stream(request, events, chunks.chunks, error_body, streams)


def _embedding_route(router: APIRouter, service: EmbeddingService) -> None:
    @router.post(
        "/v1/embeddings",
        tags=["OpenAI V1"],
        summary="Embedding",
        response_model=wire.CreateEmbeddingResponse,
    )
    async def create_embedding(request: Request, body: wire.CreateEmbeddingRequest) -> Response:
        """Vectors of texts, of unit length."""
        if body.dimensions is not None:
            require("dimensions", body.dimensions, 1, MAX_INT)
        inputs = embedding_inputs(body.input)
        keep = keep_alive_s(body.keep_alive)
        embedding = service.embed(body.model or None, inputs, body.dimensions, keep_alive_s=keep)
        result = await while_connected(request, embedding)
        record = record_of(request.scope)
        record.model, record.prompt_tokens = result.model, result.prompt_tokens
        data = await embedding_list(result.vectors, as_base64=body.encoding_format == "base64")
        usage: wire.EmbeddingUsage = {
            "prompt_tokens": result.prompt_tokens,
            "total_tokens": result.prompt_tokens,
        }
        return json_reply(
            {"object": "list", "data": data, "model": body.model or result.model, "usage": usage}
        )


def _token_routes(router: APIRouter, service: GenerationService) -> None:
    @router.post(
        "/extras/tokenize", tags=["Extras"], summary="Tokenize", response_model=wire.TokenizeInputResponse
    )
    async def tokenize(request: Request, body: wire.TokenizeInputRequest) -> Response:
        """Token ids of a text, special tokens parsed, with BOS and EOS as the model has them."""
        result = await while_connected(
            request, service.tokenize(body.model or None, body.input, with_pieces=body.with_pieces)
        )
        answer: wire.TokenizeInputResponse = {"tokens": list(result.tokens)}
        if body.with_pieces:
            answer["pieces"] = [_piece(piece) for piece in result.pieces]
        return json_reply(answer)

    @router.post(
        "/extras/tokenize/count",
        tags=["Extras"],
        summary="Tokenize Count",
        response_model=wire.TokenizeInputCountResponse,
    )
    async def count_query_tokens(request: Request, body: wire.TokenizeInputRequest) -> Response:
        """How many token ids `/extras/tokenize` gives."""
        result = await while_connected(request, service.tokenize(body.model or None, body.input))
        return json_reply({"count": len(result.tokens)})

    @router.post(
        "/extras/detokenize",
        tags=["Extras"],
        summary="Detokenize",
        response_model=wire.DetokenizeInputResponse,
    )
    async def detokenize(request: Request, body: wire.DetokenizeInputRequest) -> Response:
        """Text of token ids, special tokens left out."""
        for token in body.tokens:
            if not 0 <= token <= MAX_INT:
                raise InvalidRequest(f"tokens: {str(token)[:20]} is not a token id", param="tokens")
        text = await while_connected(request, service.detokenize(body.model or None, body.tokens))
        return json_reply({"text": text})


def _piece(piece: bytes) -> str | list[int]:
    """As llama-server tells pieces."""
    try:
        return piece.decode("utf-8")
    except UnicodeDecodeError:
        return list(piece)


def _wants_usage(
    body: wire_chat.CreateChatCompletionRequest | wire_completion.CreateCompletionRequest,
) -> bool:
    return body.stream_options is not None and body.stream_options.include_usage is True
