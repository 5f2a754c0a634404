"""Wire types of LMDeploy's small routes: encode, embeddings, pooling, models. They never leave this folder."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field
from typing_extensions import TypedDict

from jan_serve.api.dialects.lmdeploy import limits
from jan_serve.api.dialects.lmdeploy.wire_common import Usage
from jan_serve.api.shared.wire_types import AtMost, Int, Strings, TextsOrTokens, WireModel


class EncodeRequest(WireModel):
    """Text to turn into token ids. do_preprocess: put the chat template around it first."""

    input: Annotated[str | Strings, AtMost(limits.MAX_INPUTS, "input")]
    do_preprocess: bool | None = False
    add_bos: bool | None = True


class EncodeReply(TypedDict):
    """Ids and how many there are; lists of both for a list of texts."""

    input_ids: list[int] | list[list[int]]
    length: int | list[int]


class EmbeddingsRequest(WireModel):
    """Texts or token ids to embed."""

    model: str
    input: Annotated[
        str | list[str] | list[int] | list[list[int]],
        TextsOrTokens("input", limits.MAX_INPUTS, limits.MAX_PROMPT_TOKENS),
        Field(description="A text, token ids, or a list of these."),
    ]
    encoding_format: Annotated[
        Literal["float", "base64"] | None, Field(description="base64 is of little-endian float32.")
    ] = None
    dimensions: Annotated[
        Int | None, Field(description="Keep the first ones and scale them to unit length again.")
    ] = None
    user: str | None = None


class EmbeddingUsage(TypedDict):
    """Token counts."""

    prompt_tokens: int
    total_tokens: int


class EmbeddingsReply(TypedDict):
    """Vectors in the order of the inputs."""

    object: Literal["list"]
    data: list[dict[str, Any]]
    model: str
    usage: EmbeddingUsage


class PoolingRequest(WireModel):
    """What to pool. `dimensions` and `user` are read and change nothing, as in LMDeploy."""

    input: Annotated[
        str | list[Any],
        Field(description="A text, a list of texts, token ids, or a list of token id lists."),
    ]
    model: str | None = None
    encoding_format: Annotated[
        Literal["float", "base64"],
        Field(description="Of vectors: base64 is of little-endian float32. A score is always a number."),
    ] = "float"
    dimensions: Int | None = None
    user: str | None = None


class PoolingData(TypedDict):
    """What one input pools to: a score; a list where a classifier has several outputs, or the model makes vectors."""

    index: int
    object: Literal["pooling"]
    data: float | list[float] | str


class PoolingReply(TypedDict):
    """All of them, in the order of the inputs."""

    id: str
    object: Literal["list"]
    created: int
    model: str
    data: list[PoolingData]
    usage: Usage


class HealthReply(TypedDict):
    """Whether the server is alive, and what for people to read. LMDeploy's `initializing` is never said: a model is
    loaded when it is first asked for, and requests wait for it."""

    status: Literal["healthy", "sleeping", "unhealthy"]
    message: str


class Permission(TypedDict):
    """What may be done with a model. It limits nothing."""

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
    """A model that can be asked for."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: Literal["lmdeploy"]
    root: str
    parent: None
    permission: list[Permission]


class ModelList(TypedDict):
    """All of them."""

    object: Literal["list"]
    data: list[ModelCard]
