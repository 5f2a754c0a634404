"""Embeddings in the form of OpenAI's API, which several dialects share."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Sequence
from functools import partial
from typing import Annotated, Final, Literal

import msgspec
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import TypedDict

from jan_serve.dialects.shared import limits
from jan_serve.dialects.shared.answers import on_model
from jan_serve.dialects.shared.generation_fields import require
from jan_serve.dialects.shared.wire_types import MAX_INT, Inputs, Int, TextsOrTokens, WireModel
from jan_serve.generation.embeddings import embed, to_floats
from jan_serve.generation.service import GenerationService
from jan_serve.http.replies import json_bytes, json_reply

_VECTORS_AT_ONCE: Final = 16


class EmbeddingFields(WireModel):
    """Texts or token ids to embed."""

    input: Annotated[
        Inputs,
        TextsOrTokens("input", limits.MAX_EMBEDDING_INPUTS, limits.MAX_PROMPT_TOKENS),
        Field(description="A text, token ids, or a list of these."),
    ]
    encoding_format: Annotated[
        Literal["float", "base64"] | None, Field(description="base64 encodes little-endian float32.")
    ] = None
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


async def embeddings_reply(
    request: Request,
    service: GenerationService,
    body: EmbeddingFields,
    model: str | None,
    ttl_s: float | None = None,
) -> Response:
    """Embed the inputs. Raises as `embed`, and ClientGone."""
    if body.dimensions is not None:
        require("dimensions", body.dimensions, 1, MAX_INT)
    work = partial(embed, inputs=body.input, dimensions=body.dimensions)
    result = await on_model(request, service, model, work, ttl_s)
    data = await embedding_list(result.vectors, as_base64=body.encoding_format == "base64")
    usage = EmbeddingUsage(prompt_tokens=result.prompt_tokens, total_tokens=result.prompt_tokens)
    return json_reply({"object": "list", "data": data, "model": model or result.model, "usage": usage})


class EmbeddingItem(msgspec.Struct, frozen=True):
    """embedding: encoded JSON, a list of numbers or a base64 text."""

    index: int
    embedding: msgspec.Raw
    object: str = "embedding"


async def embedding_list(vectors: Sequence[bytes], *, as_base64: bool) -> list[EmbeddingItem]:
    """One item per vector. Yields to the event loop regularly: thousands of vectors take seconds to encode."""
    items: list[EmbeddingItem] = []
    for index, vector in enumerate(vectors):
        value = base64.b64encode(vector).decode() if as_base64 else to_floats(vector)
        items.append(EmbeddingItem(index, msgspec.Raw(json_bytes(value))))
        if index % _VECTORS_AT_ONCE == _VECTORS_AT_ONCE - 1:
            await asyncio.sleep(0)
    return items
