"""Wire types of /v1/embeddings."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field
from typing_extensions import TypedDict

from jan_serve.dialects.shared import limits
from jan_serve.dialects.shared.keep_alive import KeepAlive
from jan_serve.dialects.shared.wire_types import Int, TextsOrTokens, WireModel


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
