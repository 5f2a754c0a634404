"""Routes that read inputs and generate nothing: encode, embeddings, pooling."""

from __future__ import annotations

import base64
import time
import uuid
from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter
from pydantic import Field
from pydantic_core import PydanticCustomError
from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import TypedDict

from jan_serve.core.messages import Message
from jan_serve.core.request import ChatPrompt
from jan_serve.dialects.lmdeploy.serving import Serving
from jan_serve.dialects.shared import limits
from jan_serve.dialects.shared.answers import on_model
from jan_serve.dialects.shared.embedding_list import (
    CreateEmbeddingResponse,
    EmbeddingFields,
    EmbeddingUsage,
    embeddings_reply,
)
from jan_serve.dialects.shared.wire_types import AtMost, Inputs, Int, LaxModel, Strings, TextsOrTokens
from jan_serve.errors import InvalidRequest
from jan_serve.generation.embeddings import Vectors, pool, to_floats
from jan_serve.http.disconnect import while_connected
from jan_serve.http.replies import json_reply


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
        str | list[Any], Field(description="A text, a list of texts, token ids, or a list of token id lists.")
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
    """As OpenAI once had them. Has no effect."""

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


_INPUTS: Final = TextsOrTokens("input", limits.MAX_EMBEDDING_INPUTS, limits.MAX_PROMPT_TOKENS)


def pooling_inputs(value: str | list[Any]) -> Inputs:
    """The four forms of `input`. Raises InvalidRequest with LMDeploy's messages."""
    if not value and isinstance(value, list):
        raise InvalidRequest("Input list cannot be empty.", param="input")
    try:
        return _INPUTS.read(value)
    except PydanticCustomError:
        raise InvalidRequest("Input list contains an invalid type.", param="input") from None


def add_input_routes(router: APIRouter, serving: Serving, prefix: str) -> None:
    @router.post(f"{prefix}/v1/encode", response_model=EncodeReply)
    async def encode(request: Request, body: EncodeRequest) -> Response:
        """Tokenize texts."""
        texts = [body.input] if isinstance(body.input, str) else body.input
        rows = await while_connected(request, _encoded(serving, texts, body))
        if isinstance(body.input, str):
            return json_reply({"input_ids": rows[0], "length": len(rows[0])})
        return json_reply({"input_ids": rows, "length": [len(row) for row in rows]})

    @router.post(f"{prefix}/pooling", response_model=PoolingReply)
    async def pooling(request: Request, body: PoolingRequest) -> Response:
        """Pool inputs: scores of a reward or reranking model, or vectors of an embedding model."""
        work = partial(pool, inputs=pooling_inputs(body.input))
        pooled = await on_model(request, serving.generation, body.model, work)
        reply: PoolingReply = {
            "id": f"pool-{uuid.uuid4().hex}",
            "object": "list",
            "created": int(time.time()),
            "model": body.model or pooled.model,
            "data": _pooled_items(pooled, as_base64=body.encoding_format == "base64"),
            "usage": {
                "prompt_tokens": pooled.prompt_tokens,
                "total_tokens": pooled.prompt_tokens,
                "completion_tokens": 0,
            },
        }
        return json_reply(reply)


async def _encoded(serving: Serving, texts: Sequence[str], body: EncodeRequest) -> list[list[int]]:
    rows: list[list[int]] = []
    async with serving.generation.open(None) as model:
        bos = model.facts.special_tokens.get("bos")
        for text in texts:
            if body.do_preprocess:
                chat = ChatPrompt(messages=(Message(role="user", content=text),))
                text = await model.chat_text(chat)
            row = (await model.tokenize(text)).tokens
            if bos is not None:
                if row[:2] == [bos.id, bos.id]:
                    row = row[1:]  # the template or the text has one already
                if body.add_bos is False and row[:1] == [bos.id]:
                    row = row[1:]
            rows.append(row)
    return rows


def add_embedding_route(router: APIRouter, serving: Serving, prefix: str) -> None:
    """LMDeploy always rejects this route; here it works as in OpenAI's API."""

    @router.post(f"{prefix}/v1/embeddings", response_model=CreateEmbeddingResponse)
    async def embeddings(request: Request, body: EmbeddingsRequest) -> Response:
        """Embed texts as vectors of unit length."""
        return await embeddings_reply(request, serving.generation, body, body.model)


def _pooled_items(pooled: Vectors, *, as_base64: bool) -> list[PoolingData]:
    items: list[PoolingData] = []
    for index, vector in enumerate(pooled.vectors):
        values = to_floats(vector)
        data: float | list[float] | str = list(values)
        if pooled.score_at is not None:
            data = values[pooled.score_at]
        elif as_base64:
            data = base64.b64encode(vector).decode()
        items.append({"index": index, "object": "pooling", "data": data})
    return items
