"""Routes that read inputs and generate nothing: encode, embeddings, pooling."""

from __future__ import annotations

import base64
import time
import uuid
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from fastapi import APIRouter
from pydantic_core import PydanticCustomError
from starlette.requests import Request
from starlette.responses import Response

from jan_serve.core.messages import Message
from jan_serve.core.request import ChatPrompt
from jan_serve.dialects.lmdeploy.inputs import wire
from jan_serve.dialects.lmdeploy.serving import LmdeployServices
from jan_serve.dialects.shared import limits
from jan_serve.dialects.shared.answers import on_model
from jan_serve.dialects.shared.embedding_list import CreateEmbeddingResponse, embeddings_reply
from jan_serve.dialects.shared.wire_types import Inputs, TextsOrTokens
from jan_serve.errors import InvalidRequest
from jan_serve.generation.embeddings import Pooled, pool, to_floats
from jan_serve.http.disconnect import while_connected
from jan_serve.http.replies import json_reply

_INPUTS: Final = TextsOrTokens("input", limits.MAX_EMBEDDING_INPUTS, limits.MAX_PROMPT_TOKENS)


def pooling_inputs(value: str | list[Any]) -> Inputs:
    """The four forms of `input`. Raises InvalidRequest with LMDeploy's messages."""
    if not value and isinstance(value, list):
        raise InvalidRequest("Input list cannot be empty.", param="input")
    try:
        return _INPUTS.read(value)
    except PydanticCustomError:
        raise InvalidRequest("Input list contains an invalid type.", param="input") from None


def add_encode_route(router: APIRouter, services: LmdeployServices, prefix: str) -> None:
    @router.post(f"{prefix}/v1/encode", response_model=wire.EncodeReply)
    async def encode(request: Request, body: wire.EncodeRequest) -> Response:
        """Tokenize texts."""
        texts = [body.input] if isinstance(body.input, str) else body.input
        rows = await while_connected(request, _encoded(services, texts, body))
        if isinstance(body.input, str):
            return json_reply({"input_ids": rows[0], "length": len(rows[0])})
        return json_reply({"input_ids": rows, "length": [len(row) for row in rows]})


async def _encoded(
    services: LmdeployServices, texts: Sequence[str], body: wire.EncodeRequest
) -> list[list[int]]:
    rows: list[list[int]] = []
    async with services.generation.open(None) as model:
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


def add_embedding_route(router: APIRouter, services: LmdeployServices, prefix: str) -> None:
    """LMDeploy always rejects this route; here it works as in OpenAI's API."""

    @router.post(f"{prefix}/v1/embeddings", response_model=CreateEmbeddingResponse)
    async def embeddings(request: Request, body: wire.EmbeddingsRequest) -> Response:
        """Embed texts as vectors of unit length."""
        return await embeddings_reply(request, services.generation, body, body.model)


def add_pooling_route(router: APIRouter, services: LmdeployServices, prefix: str) -> None:
    @router.post(f"{prefix}/pooling", response_model=wire.PoolingReply)
    async def pooling(request: Request, body: wire.PoolingRequest) -> Response:
        """Pool inputs: scores of a reward or reranking model, or vectors of an embedding model."""
        work = partial(pool, inputs=pooling_inputs(body.input))
        pooled = await on_model(request, services.generation, body.model, work)
        reply: wire.PoolingReply = {
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


def _pooled_items(pooled: Pooled, *, as_base64: bool) -> list[wire.PoolingData]:
    items: list[wire.PoolingData] = []
    for index, vector in enumerate(pooled.vectors):
        values = to_floats(vector)
        data: float | list[float] | str = list(values)
        if pooled.score_at is not None:
            data = values[pooled.score_at]
        elif as_base64:
            data = base64.b64encode(vector).decode()
        items.append({"index": index, "object": "pooling", "data": data})
    return items
