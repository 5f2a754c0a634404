"""POST /v1/chat/completions."""

from __future__ import annotations

import time
import uuid

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from jan_serve.dialects.dialect import Services
from jan_serve.dialects.openai.chat.parse import chat_request, uses_functions
from jan_serve.dialects.openai.chat.render import ChatForm, ChatRenderer
from jan_serve.dialects.openai.chat.wire import CreateChatCompletionRequest, CreateChatCompletionResponse
from jan_serve.dialects.openai.parse_common import wants_usage
from jan_serve.dialects.openai.render_common import ReplyHead
from jan_serve.dialects.shared.answers import answer
from jan_serve.dialects.shared.default_errors import error_body
from jan_serve.generation.service import GenerationService
from jan_serve.http.sse import SSE_RESPONSE


def add_chat_route(router: APIRouter, services: Services, service: GenerationService) -> None:

    @router.post(
        "/v1/chat/completions",
        tags=["OpenAI V1"],
        summary="Chat",
        response_model=CreateChatCompletionResponse,
        responses={200: {"content": SSE_RESPONSE}},
    )
    async def create_chat_completion(request: Request, body: CreateChatCompletionRequest) -> Response:
        """Answer the last message of a conversation."""
        generation = chat_request(body)
        head = ReplyHead(f"chatcmpl-{uuid.uuid4()}", int(time.time()), body.model)
        events = service.generate(generation)
        form = ChatForm(
            n=generation.n,
            logprobs=generation.logprobs is not None,
            functions=uses_functions(body),
            include_usage=wants_usage(body),
        )
        renderer = ChatRenderer(head, form)
        return await answer(request, events, renderer, error_body, services.streams, stream=body.stream)
