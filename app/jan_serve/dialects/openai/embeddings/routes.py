"""POST /v1/embeddings."""

from __future__ import annotations

from functools import partial

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from jan_serve.dialects.openai.embeddings.wire import (
    CreateEmbeddingRequest,
    CreateEmbeddingResponse,
    EmbeddingUsage,
)
from jan_serve.dialects.openai.parse_common import require
from jan_serve.dialects.shared.embedding_list import embedding_inputs, embedding_list
from jan_serve.dialects.shared.keep_alive import keep_alive_s
from jan_serve.dialects.shared.wire_types import MAX_INT
from jan_serve.generation.embeddings import embed
from jan_serve.generation.service import GenerationService
from jan_serve.http.disconnect import while_connected
from jan_serve.http.replies import json_reply
from jan_serve.http.request_record import record_of


def add_embedding_route(router: APIRouter, service: GenerationService) -> None:
    @router.post(
        "/v1/embeddings",
        tags=["OpenAI V1"],
        summary="Embedding",
        response_model=CreateEmbeddingResponse,
    )
    async def create_embedding(request: Request, body: CreateEmbeddingRequest) -> Response:
        """Embed texts as vectors of unit length."""
        if body.dimensions is not None:
            require("dimensions", body.dimensions, 1, MAX_INT)
        inputs = embedding_inputs(body.input)
        keep = keep_alive_s(body.keep_alive)
        work = partial(embed, inputs=inputs, dimensions=body.dimensions)
        result = await while_connected(request, service.with_model(body.model or None, work, keep))
        record = record_of(request.scope)
        record.model, record.prompt_tokens = result.model, result.prompt_tokens
        data = await embedding_list(result.vectors, as_base64=body.encoding_format == "base64")
        usage: EmbeddingUsage = {
            "prompt_tokens": result.prompt_tokens,
            "total_tokens": result.prompt_tokens,
        }
        return json_reply(
            {"object": "list", "data": data, "model": body.model or result.model, "usage": usage}
        )
