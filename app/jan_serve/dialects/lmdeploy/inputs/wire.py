"""Wire types of the encode, embeddings, pooling, health and models routes."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field
from typing_extensions import TypedDict

from jan_serve.dialects.shared import limits
from jan_serve.dialects.shared.embedding_list import EmbeddingFields, EmbeddingUsage
from jan_serve.dialects.shared.wire_types import AtMost, Int, LaxModel, Strings


class EncodeRequest(LaxModel):
    """Texts to tokenize. do_preprocess: apply the chat template first."""

    input: Annotated[str | Strings, AtMost(limits.MAX_EMBEDDING_INPUTS, "input")]
    do_preprocess: bool | None = False
    add_bos: bool | None = True


class EncodeReply(TypedDict):
    """Ids and their count; lists of both for a list of texts."""

    input_ids: list[int] | list[list[int]]
    length: int | list[int]


class EmbeddingsRequest(EmbeddingFields, LaxModel):
    """Texts or token ids to embed."""

    model: str


class PoolingUsage(EmbeddingUsage):
    completion_tokens: int


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
