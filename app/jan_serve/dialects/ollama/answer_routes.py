"""POST /api/chat and /api/generate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from jan_serve.dialects.ollama.chat.parse import chat_job
from jan_serve.dialects.ollama.chat.wire import OllamaChatReply, OllamaChatRequest, OllamaMessage
from jan_serve.dialects.ollama.generate.parse import generate_job, has_no_prompt
from jan_serve.dialects.ollama.generate.wire import OllamaGenerateReply, OllamaGenerateRequest
from jan_serve.dialects.ollama.parse_common import model_name, unloads
from jan_serve.dialects.ollama.render_common import OllamaCall, ReplyHead, Shape
from jan_serve.dialects.ollama.serving import Serving
from jan_serve.dialects.ollama.wire_common import AnswerFields
from jan_serve.dialects.shared.keep_alive import keep_alive_s
from jan_serve.http.replies import json_reply

STREAMED: Final[dict[int | str, dict[str, Any]]] = {200: {"content": {"application/x-ndjson": {}}}}


def add_answer_routes(router: APIRouter, serving: Serving) -> None:
    @router.post("/api/chat", summary="Chat", response_model=OllamaChatReply, responses=STREAMED)
    async def chat(request: Request, body: OllamaChatRequest) -> Response:
        """Answer the last message of a conversation. Without messages: load the model, or unload it."""
        if not body.messages:
            return await _load_or_unload(request, serving, body, message_shape)
        return await serving.answer(request, chat_job(body), message_shape, stream=body.stream is not False)

    @router.post("/api/generate", summary="Text", response_model=OllamaGenerateReply, responses=STREAMED)
    async def generate(request: Request, body: OllamaGenerateRequest) -> Response:
        """Answer a prompt, continue it (`raw`) or fill a gap (`suffix`). Without one: load the model, or unload it."""
        if has_no_prompt(body):
            return await _load_or_unload(request, serving, body, text_shape)
        return await serving.answer(request, generate_job(body), text_shape, stream=body.stream is not False)


async def _load_or_unload(request: Request, serving: Serving, body: AnswerFields, shape: Shape) -> Response:
    """For a request without a prompt: one body, streamed or not."""
    name = model_name(body)
    head = ReplyHead(name, shape, serving.now)
    if unloads(body):
        await serving.unload(request, name)
        reason = "unload"
    else:
        await serving.load(request, name, keep_alive_s(body.keep_alive))
        reason = "load"
    return json_reply({**head.body("", "", (), done=True), "done_reason": reason})


def message_shape(text: str, thought: str, calls: Sequence[OllamaCall]) -> dict[str, Any]:
    """Of /api/chat: a message."""
    message: OllamaMessage = {"role": "assistant", "content": text}
    if thought:
        message["thinking"] = thought
    if calls:
        message["tool_calls"] = list(calls)
    return {"message": message}


def text_shape(text: str, thought: str, calls: Sequence[OllamaCall]) -> dict[str, Any]:
    """Of /api/generate: text and thought beside the other members. calls: empty, because a text offers no tools."""
    return {"response": text, **({"thinking": thought} if thought else {})}
