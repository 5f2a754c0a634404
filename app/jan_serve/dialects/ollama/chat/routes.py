"""POST /api/chat."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from jan_serve.dialects.ollama.answering import NDJSON_RESPONSE, load_or_unload
from jan_serve.dialects.ollama.chat.parse import chat_job
from jan_serve.dialects.ollama.chat.render import message_shape
from jan_serve.dialects.ollama.chat.wire import OllamaChatReply, OllamaChatRequest
from jan_serve.dialects.ollama.serving import Serving


def add_chat_route(router: APIRouter, serving: Serving) -> None:
    @router.post(
        "/api/chat",
        summary="Chat",
        response_model=OllamaChatReply,
        responses={200: {"content": NDJSON_RESPONSE}},
    )
    async def chat(request: Request, body: OllamaChatRequest) -> Response:
        """Answer the last message of a conversation. Without messages: load the model, or unload it."""
        if not body.messages:
            return await load_or_unload(request, serving, body, message_shape)
        return await serving.answer(request, chat_job(body), message_shape, stream=body.stream is not False)
