"""POST /v1/embeddings, with its wire types."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Literal

from fastapi import APIRouter
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import TypedDict

from jan_serve.dialects.openai.parse_common import require
from jan_serve.dialects.shared import limits
from jan_serve.dialects.shared.embedding_list import embedding_inputs, embedding_list
from jan_serve.dialects.shared.keep_alive import KeepAlive, ttl_s
from jan_serve.dialects.shared.wire_types import MAX_INT, Int, TextsOrTokens, WireModel
from jan_serve.generation.embeddings import embed
from jan_serve.generation.service import GenerationService
from jan_serve.http.disconnect import while_connected
from jan_serve.http.replies import json_reply
from jan_serve.http.request_record import record_of


class CreateEmbeddingRequest(WireModel):
    """Texts or token ids to embed."""

    input: Annotated[
        str | list[str] | list[int] | list[list[int]],
        TextsOrTokens("input", limits.MAX_EMBEDDING_INPUTS, limits.MAX_PROMPT_TOKENS),
        Field(description="A text, token ids, or a list of these."),
    ]
    model: str | None = None
    encoding_format: Annotated[
        Literal["float", "base64"] | None, Field(description="base64 encodes little-endian float32.")
    ] = None
    keep_alive: KeepAlive = None
    dimensions: Annotated[
        Int | None, Field(description="Keep only the first dimensions, scaled to unit length.")
    ] = None
    user: str | None = None


class Embedding(TypedDict):
    object: Literal["embedding"]
    index: int
    embedding: list[float] | str


class EmbeddingUsage(TypedDict):
    prompt_tokens: int
    total_tokens: int


class CreateEmbeddingResponse(TypedDict):
    """Vectors in the order of the inputs."""

    object: Literal["list"]
    data: list[Embedding]
    model: str
    usage: EmbeddingUsage


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
        keep = ttl_s(body.keep_alive)
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
