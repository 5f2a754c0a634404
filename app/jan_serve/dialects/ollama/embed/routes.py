"""POST /api/embed, and the older POST /api/embeddings."""

from __future__ import annotations

import time
from collections.abc import Sequence

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from jan_serve.dialects.ollama.embed.wire import (
    OllamaEmbeddingsReply,
    OllamaEmbeddingsRequest,
    OllamaEmbedReply,
    OllamaEmbedRequest,
)
from jan_serve.dialects.ollama.options import parse_options
from jan_serve.dialects.ollama.parse_common import model_name
from jan_serve.dialects.ollama.serving import Serving
from jan_serve.dialects.shared.embedding_list import embedding_list
from jan_serve.dialects.shared.keep_alive import keep_alive_s
from jan_serve.errors import ContextLengthExceeded
from jan_serve.generation.embeddings import Embeddings, embed
from jan_serve.http.disconnect import while_connected
from jan_serve.http.replies import json_reply
from jan_serve.http.request_record import record_of


def add_embedding_routes(router: APIRouter, serving: Serving) -> None:
    @router.post("/api/embed", summary="Embeddings", response_model=OllamaEmbedReply)
    async def embed(request: Request, body: OllamaEmbedRequest) -> Response:
        """Embed texts as vectors of unit length."""
        started = time.perf_counter_ns()
        name, keep = model_name(body), keep_alive_s(body.keep_alive)
        parse_options(body.options)
        vectors, count = [], 0
        if body.input:
            work = _embed(serving, name, body.input, body.dimensions or None, keep, cut=body.truncate is True)
            result, load_ns = await while_connected(request, work)
            record = record_of(request.scope)
            record.model, record.prompt_tokens = result.model, result.prompt_tokens
            vectors = [item.embedding for item in await embedding_list(result.vectors, as_base64=False)]
            count = result.prompt_tokens
        else:
            load_ns = await serving.load(request, name, keep)
        return json_reply(
            {
                "model": name,
                "embeddings": vectors,
                "total_duration": time.perf_counter_ns() - started,
                "load_duration": load_ns,
                "prompt_eval_count": count,
            }
        )

    @router.post("/api/embeddings", summary="Embedding of one text", response_model=OllamaEmbeddingsReply)
    async def embeddings(request: Request, body: OllamaEmbeddingsRequest) -> Response:
        """Embed one text; replaced by /api/embed."""
        name, keep = model_name(body), keep_alive_s(body.keep_alive)
        parse_options(body.options)
        if not body.prompt:
            await serving.load(request, name, keep)
            return json_reply({"embedding": []})
        work = _embed(serving, name, [body.prompt], None, keep, cut=False)
        result, _ = await while_connected(request, work)
        record = record_of(request.scope)
        record.model, record.prompt_tokens = result.model, result.prompt_tokens
        [item] = await embedding_list(result.vectors, as_base64=False)
        return json_reply({"embedding": item.embedding})


async def _embed(
    serving: Serving,
    name: str,
    texts: Sequence[str],
    dimensions: int | None,
    keep_alive_s: float | None,
    *,
    cut: bool,
) -> tuple[Embeddings, int]:
    """The embeddings, and the nanoseconds until the model was held. cut: shorten inputs that are too long.

    Raises as GenerationService.open and `embed`.
    """
    inputs: list[str | tuple[int, ...]] = list(texts)
    started = time.perf_counter_ns()
    async with serving.generation.open(name, keep_alive_s) as model:
        load_ns = time.perf_counter_ns() - started
        for _ in range(len(inputs) + 1):
            try:
                return await embed(model, inputs, dimensions), load_ns
            except ContextLengthExceeded as error:
                index = error.item or 0
                text = inputs[index]
                if not cut or not isinstance(text, str):
                    raise
                tokens = tuple((await model.tokenize(text)).tokens)
                inputs[index] = tokens[: error.n_ctx]
    raise AssertionError("every input was cut once")
