"""Routes that read inputs and generate nothing: encode, embeddings, pooling."""

from __future__ import annotations

import base64
import time
import uuid
from collections.abc import Sequence
from functools import partial
from typing import cast

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from jan_serve.core.messages import Message
from jan_serve.core.request import ChatPrompt
from jan_serve.dialects.lmdeploy.inputs import wire
from jan_serve.dialects.lmdeploy.serving import LmdeployServices
from jan_serve.dialects.shared import limits
from jan_serve.dialects.shared.embedding_list import embedding_inputs, embedding_list
from jan_serve.dialects.shared.wire_types import MAX_INT, check_count
from jan_serve.errors import InvalidRequest
from jan_serve.generation.embeddings import Pooled, embed, pool, to_floats
from jan_serve.http.disconnect import while_connected
from jan_serve.http.replies import json_reply
from jan_serve.http.request_record import record_of


def pooling_inputs(value: str | list[object]) -> list[str | tuple[int, ...]]:
    """The four forms of `input`, as texts or token ids. Raises InvalidRequest with LMDeploy's messages."""
    if isinstance(value, str):
        return [value]
    if not value:
        raise InvalidRequest("Input list cannot be empty.", param="input")
    if all(isinstance(item, str) for item in value):
        check_count(value, limits.MAX_EMBEDDING_INPUTS, "input")
        return [cast(str, item) for item in value]
    if _are_ids(value):
        return [_ids(value)]
    rows = [cast(list[object], item) for item in value if isinstance(item, list)]
    if len(rows) != len(value) or not all(map(_are_ids, rows)):
        raise InvalidRequest("Input list contains an invalid type.", param="input")
    check_count(rows, limits.MAX_EMBEDDING_INPUTS, "input")
    return [_ids(row) for row in rows]


def _are_ids(items: Sequence[object]) -> bool:
    return all(isinstance(item, int) and not isinstance(item, bool) for item in items)


def _ids(items: Sequence[object]) -> tuple[int, ...]:
    check_count(items, limits.MAX_PROMPT_TOKENS, "input")
    ids = tuple(cast(int, item) for item in items)
    for token in ids:
        if not 0 <= token <= MAX_INT:
            raise InvalidRequest(f"input: {str(token)[:20]} is not a token id", param="input")
    return ids


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

    @router.post(f"{prefix}/v1/embeddings", response_model=wire.EmbeddingsReply)
    async def embeddings(request: Request, body: wire.EmbeddingsRequest) -> Response:
        """Embed texts as vectors of unit length."""
        if body.dimensions is not None and not 1 <= body.dimensions <= MAX_INT:
            raise InvalidRequest(
                f"dimensions: must be 1 or more, got {str(body.dimensions)[:20]}", param="dimensions"
            )
        inputs = embedding_inputs(body.input)
        work = partial(embed, inputs=inputs, dimensions=body.dimensions)
        result = await while_connected(request, services.generation.with_model(body.model, work))
        _record(request, result.model, result.prompt_tokens)
        data = await embedding_list(result.vectors, as_base64=body.encoding_format == "base64")
        usage: wire.EmbeddingUsage = {
            "prompt_tokens": result.prompt_tokens,
            "total_tokens": result.prompt_tokens,
        }
        return json_reply({"object": "list", "data": data, "model": body.model, "usage": usage})


def add_pooling_route(router: APIRouter, services: LmdeployServices, prefix: str) -> None:
    @router.post(f"{prefix}/pooling", response_model=wire.PoolingReply)
    async def pooling(request: Request, body: wire.PoolingRequest) -> Response:
        """Pool inputs: scores of a reward or reranking model, or vectors of an embedding model."""
        work = partial(pool, inputs=pooling_inputs(body.input))
        pooled = await while_connected(request, services.generation.with_model(body.model, work))
        _record(request, pooled.model, pooled.prompt_tokens)
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


def _record(request: Request, model: str, prompt_tokens: int) -> None:
    record = record_of(request.scope)
    record.model, record.prompt_tokens = model, prompt_tokens
