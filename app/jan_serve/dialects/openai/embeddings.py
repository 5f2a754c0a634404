"""POST /v1/embeddings."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from jan_serve.dialects.openai.dialect import OpenAIParts
from jan_serve.dialects.shared.embedding_list import (
    CreateEmbeddingResponse,
    EmbeddingFields,
    embeddings_reply,
)
from jan_serve.dialects.shared.generation_fields import KeepAlive, ttl_s


class CreateEmbeddingRequest(EmbeddingFields):
    """Texts or token ids to embed."""

    model: str | None = None
    keep_alive: KeepAlive = None


def add_routes(router: APIRouter, parts: OpenAIParts) -> None:
    @router.post("/v1/embeddings", summary="Embedding", response_model=CreateEmbeddingResponse)
    async def create_embedding(request: Request, body: CreateEmbeddingRequest) -> Response:
        """Embed texts as vectors of unit length."""
        return await embeddings_reply(request, parts.service, body, body.model, ttl_s(body.keep_alive))
