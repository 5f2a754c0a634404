"""Wire types of the encode, embeddings, pooling, health and models routes."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field
from typing_extensions import TypedDict

from jan_serve.dialects.shared import limits
from jan_serve.dialects.shared.wire_types import AtMost, Int, LaxModel, Strings, TextsOrTokens


class EncodeRequest(LaxModel):
    """Texts to tokenize. do_preprocess: apply the chat template first."""

    input: Annotated[str | Strings, AtMost(limits.MAX_EMBEDDING_INPUTS, "input")]
    do_preprocess: bool | None = False
    add_bos: bool | None = True


class EncodeReply(TypedDict):
    """Ids and their count; lists of both for a list of texts."""

    input_ids: list[int] | list[list[int]]
    length: int | list[int]


class EmbeddingsRequest(LaxModel):
    """Texts or token ids to embed."""

    model: str
    input: Annotated[
        str | list[str] | list[int] | list[list[int]],
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


class EmbeddingUsage(TypedDict):
    prompt_tokens: int
    total_tokens: int


class PoolingUsage(EmbeddingUsage):
    completion_tokens: int


class EmbeddingsReply(TypedDict):
    """Vectors in the order of the inputs."""

    object: Literal["list"]
    data: list[dict[str, Any]]
    model: str
    usage: EmbeddingUsage


class PoolingRequest(LaxModel):
    """Inputs to pool. `dimensions` and `user` have no effect, as in LMDeploy."""

    input: Annotated[
        str | list[Any],
        Field(description="A text, a list of texts, token ids, or a list of token id lists."),
    ]
    model: str | None = None
    encoding_format: Annotated[
        Literal["float", "base64"],
        Field(description="For vectors: base64 encodes little-endian float32. A score is always a number."),
    ] = "float"
    dimensions: Int | None = None
    user: str | None = None


class PoolingData(TypedDict):
    """The result of one input: a score, or a list for classifiers with several outputs and embedding models."""

    index: int
    object: Literal["pooling"]
    data: float | list[float] | str


class PoolingReply(TypedDict):
    """Results in the order of the inputs."""

    id: str
    object: Literal["list"]
    created: int
    model: str
    data: list[PoolingData]
    usage: PoolingUsage


class HealthReply(TypedDict):
    """Never LMDeploy's `initializing`: models load on demand, and requests wait for them."""

    status: Literal["healthy", "sleeping", "unhealthy"]
    message: str


class Permission(TypedDict):
    """Has no effect."""

    id: str
    object: Literal["model_permission"]
    created: int
    allow_create_engine: bool
    allow_sampling: bool
    allow_logprobs: bool
    allow_search_indices: bool
    allow_view: bool
    allow_fine_tuning: bool
    organization: str
    group: None
    is_blocking: bool


class ModelCard(TypedDict):
    """An available model."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: Literal["lmdeploy"]
    root: str
    parent: None
    permission: list[Permission]


class ModelList(TypedDict):
    object: Literal["list"]
    data: list[ModelCard]
