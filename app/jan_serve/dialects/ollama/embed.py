"""POST /api/embed, and the older POST /api/embeddings."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import BaseModel, BeforeValidator, Field
from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import TypedDict

from jan_serve.dialects.ollama.common import ModelFields, OptionValues, model_name, parse_options
from jan_serve.dialects.ollama.serving import Serving
from jan_serve.dialects.shared import limits
from jan_serve.dialects.shared.answers import count_tokens
from jan_serve.dialects.shared.embedding_list import embedding_list
from jan_serve.dialects.shared.generation_fields import KeepAlive, ttl_s
from jan_serve.dialects.shared.wire_types import Between, Int, check_count
from jan_serve.errors import ContextLengthExceeded, InvalidRequest
from jan_serve.generation.embeddings import Vectors, embed
from jan_serve.http.disconnect import while_connected
from jan_serve.http.replies import json_reply


def _texts(value: Any) -> Any:
    texts: Any = [] if value in (None, "") else [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):  # pyright: ignore[reportUnknownVariableType]
        raise InvalidRequest("invalid input type: a text or a list of texts is expected", param="input")
    check_count(texts, limits.MAX_EMBEDDING_INPUTS, "input")  # pyright: ignore[reportUnknownArgumentType]
    return texts  # pyright: ignore[reportUnknownVariableType]


class OllamaEmbedRequest(ModelFields):
    """Texts to embed. Without any, the model is loaded."""

    input: Annotated[
        list[str],
        BeforeValidator(_texts, json_schema_input_type=str | list[str] | None),
        Field(description="A text or a list of texts."),
    ] = Field(default_factory=list[str])
    truncate: Annotated[
        bool | None,
        Field(description="Cut inputs that are longer than the context; otherwise they are refused."),
    ] = None
    dimensions: Annotated[
        Annotated[Int, Between(0)] | None,
        Field(description="Keep only the first dimensions, scaled to unit length. 0 keeps all."),
    ] = None
    keep_alive: KeepAlive = None
    options: OptionValues = None


class OllamaEmbeddingsRequest(ModelFields):
    """A text to embed. Without one, the model is loaded."""

    prompt: str | None = None
    keep_alive: KeepAlive = None
    options: OptionValues = None


class OllamaEmbedReply(TypedDict):
    """Vectors of unit length, in the order of the inputs. Durations in nanoseconds."""

    model: str
    embeddings: list[list[float]]
    total_duration: int
    load_duration: int
    prompt_eval_count: int


class OllamaEmbeddingsReply(BaseModel):
    """A vector of unit length."""

    embedding: list[float]


def add_embedding_routes(router: APIRouter, serving: Serving) -> None:
    @router.post("/api/embed", summary="Embeddings", response_model=OllamaEmbedReply)
    async def embed(request: Request, body: OllamaEmbedRequest) -> Response:
        """Embed texts as vectors of unit length."""
        started, cut = time.perf_counter_ns(), body.truncate is True
        vectors, count, load_ns = await _vectors(request, serving, body, body.input, body.dimensions, cut=cut)
        reply = {
            "model": model_name(body),
            "embeddings": vectors,
            "total_duration": time.perf_counter_ns() - started,
            "load_duration": load_ns,
            "prompt_eval_count": count,
        }
        return json_reply(reply)

    @router.post("/api/embeddings", summary="Embedding of one text", response_model=OllamaEmbeddingsReply)
    async def embeddings(request: Request, body: OllamaEmbeddingsRequest) -> Response:
        """Embed one text; replaced by /api/embed."""
        texts = [body.prompt] if body.prompt else []
        vectors, *_ = await _vectors(request, serving, body, texts)
        return json_reply({"embedding": vectors[0] if vectors else []})


async def _vectors(
    request: Request,
    serving: Serving,
    body: OllamaEmbedRequest | OllamaEmbeddingsRequest,
    texts: Sequence[str],
    dimensions: int | None = None,
    *,
    cut: bool = False,
) -> tuple[list[Any], int, int]:
    """The vectors, the tokens, and the nanoseconds of the load. Raises as `_embed`, and InvalidRequest."""
    name, keep = model_name(body), ttl_s(body.keep_alive)
    parse_options(body.options)
    if not texts:
        return [], 0, await serving.load(request, name, keep)
    work = _embed(serving, name, texts, dimensions or None, keep, cut=cut)
    result, load_ns = await while_connected(request, work)
    count_tokens(request, result)
    items = await embedding_list(result.vectors, as_base64=False)
    return [item.embedding for item in items], result.prompt_tokens, load_ns


async def _embed(
    serving: Serving,
    name: str,
    texts: Sequence[str],
    dimensions: int | None,
    ttl_s: float | None,
    *,
    cut: bool,
) -> tuple[Vectors, int]:
    """The embeddings, and the nanoseconds until the model was held. cut: shorten inputs that are too long.

    Raises as GenerationService.open and `embed`.
    """
    inputs: list[str | tuple[int, ...]] = list(texts)
    started = time.perf_counter_ns()
    async with serving.generation.open(name, ttl_s) as model:
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
