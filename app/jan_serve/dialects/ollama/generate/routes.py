"""POST /api/generate."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from jan_serve.dialects.ollama.answering import NDJSON_RESPONSE, load_or_unload
from jan_serve.dialects.ollama.generate.parse import generate_job, has_no_prompt
from jan_serve.dialects.ollama.generate.render import text_shape
from jan_serve.dialects.ollama.generate.wire import OllamaGenerateReply, OllamaGenerateRequest
from jan_serve.dialects.ollama.serving import Serving


def add_generate_route(router: APIRouter, serving: Serving) -> None:
    @router.post(
        "/api/generate",
        summary="Text",
        response_model=OllamaGenerateReply,
        responses={200: {"content": NDJSON_RESPONSE}},
    )
    async def generate(request: Request, body: OllamaGenerateRequest) -> Response:
        """Answer a prompt, continue it (`raw`) or fill a gap (`suffix`). Without one: load the model, or unload it."""
        if has_no_prompt(body):
            return await load_or_unload(request, serving, body, text_shape)
        return await serving.answer(request, generate_job(body), text_shape, stream=body.stream is not False)
