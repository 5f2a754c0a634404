"""TGI's native routes, at the root and under /tgi."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from jan_serve import __version__
from jan_serve.api.answers import answer_stream, answer_whole
from jan_serve.api.dialect import Services, StreamSettings
from jan_serve.api.dialects.tgi import limits
from jan_serve.api.dialects.tgi.errors import error_body
from jan_serve.api.dialects.tgi.render import TokenStream, WholeAnswer
from jan_serve.api.dialects.tgi.routes_chat import ChatServices, add_chat_routes
from jan_serve.api.dialects.tgi.validation import check, check_length, constraint_of, generation_request
from jan_serve.api.dialects.tgi.wire import (
    CompatRequest,
    ErrorBody,
    GenerateRequest,
    GenerateResponse,
    Info,
    SimpleToken,
)
from jan_serve.api.disconnect import while_connected
from jan_serve.api.errors import problem_of
from jan_serve.api.json_body import JsonRoute
from jan_serve.api.replies import json_reply
from jan_serve.api.request_record import record_of
from jan_serve.api.sse import SSE_RESPONSE, EventStream, frame
from jan_serve.errors import JanServeError
from jan_serve.generation.batch import generate_batch
from jan_serve.generation.leases import DefaultingLeases
from jan_serve.generation.service import GenerationService
from jan_serve.generation.templates import TemplateService
from jan_serve.generation.tokenize import TokenizerService

ROOT_PATHS: Final = ("/", "/generate", "/generate_stream", "/tokenize", "/info", "/invocations")
_TEXT: Final[dict[str, Any]] = {"content": {"text/plain": {"schema": {"type": "string"}}}}
_ERRORS: Final[dict[int | str, dict[str, Any]]] = {
    400: {**_TEXT, "description": "The body is not JSON"},
    401: {"description": "A key is needed; there is no body"},
    403: {"model": ErrorBody, "description": "Host or Origin is not allowed"},
    404: {"model": ErrorBody, "description": "There is no model"},
    413: {**_TEXT, "description": "The body is too large"},
    415: {**_TEXT, "description": "The body is not JSON"},
    422: {
        "description": "A parameter is refused (JSON), or the body breaks the schema (text)",
        "content": {"application/json": {}, "text/plain": {}},
    },
    424: {"model": ErrorBody, "description": "Generation failed"},
    429: {"model": ErrorBody, "description": "Too many requests are waiting"},
    500: {"model": ErrorBody, "description": "The server failed"},
    503: {"model": ErrorBody, "description": "Loading failed, or the server stops"},
    504: {"model": ErrorBody, "description": "The request took too long"},
}
_STREAMED: Final[dict[int | str, dict[str, Any]]] = {200: {"content": SSE_RESPONSE}}
_ADAPTER_IS_BASE: Final = None
_MAX_CONCURRENT: Final = 128


@dataclass(frozen=True, slots=True)
class _Native:
    """What the native routes share."""

    generation: GenerationService
    tokenizer: TokenizerService
    models: TemplateService
    streams: StreamSettings

    async def prepared(self, body: GenerateRequest, *, stream: bool) -> list[int]:
        """The input's tokens, checked and cut. Raises InvalidRequest."""
        _, facts = await self.models.facts(_ADAPTER_IS_BASE)
        check(body, stream=stream, max_input=facts.n_ctx - 1)
        constraint_of(body.parameters.grammar)
        tokens = list((await self.tokenizer.tokenize(_ADAPTER_IS_BASE, body.inputs)).tokens)
        if body.parameters.truncate is not None:
            tokens = tokens[-body.parameters.truncate :]
        check_length(body.parameters, len(tokens), facts.n_ctx)
        return tokens


def tgi_router(services: Services) -> APIRouter:
    """All routes."""
    router = APIRouter(route_class=JsonRoute, responses=_ERRORS)
    leases = DefaultingLeases(services.models)
    native = _Native(
        generation=GenerationService(leases, services.preparer, services.running),
        tokenizer=TokenizerService(leases, services.running),
        models=TemplateService(leases, services.preparer, services.running),
        streams=services.streams,
    )
    for prefix in ("", "/tgi"):
        _generation_routes(router, native, prefix)
        _fact_routes(router, native, services, prefix)
    add_chat_routes(router, ChatServices(native.generation, native.models, native.streams), "/tgi")
    return router


def _generation_routes(router: APIRouter, native: _Native, prefix: str) -> None:
    tags: list[str | Enum] = ["Text Generation Inference"]

    @router.post(f"{prefix}/generate", tags=tags, response_model=GenerateResponse)
    async def generate(request: Request, body: GenerateRequest) -> Response:
        """Generate tokens."""
        return await _whole(request, native, body, full_text=False, as_list=False)

    @router.post(f"{prefix}/generate_stream", tags=tags, response_class=Response, responses=_STREAMED)
    async def generate_stream(request: Request, body: GenerateRequest) -> Response:
        """Generate a stream of tokens."""
        return await _stream(request, native, body, full_text=False)

    async def compat(request: Request, body: CompatRequest) -> Response:
        """Generate tokens, or a stream of them where `stream` is true."""
        if body.stream:
            return await _stream(request, native, body, full_text=True)
        return await _whole(request, native, body, full_text=True, as_list=True)

    for path in (prefix or "/", f"{prefix}/invocations"):
        router.post(path, tags=tags, response_model=list[GenerateResponse], responses=_STREAMED)(compat)

    @router.post(f"{prefix}/tokenize", tags=tags, response_model=list[SimpleToken])
    async def tokenize(request: Request, body: GenerateRequest) -> Response:
        """The tokens of a text, with the bytes that each covers."""
        found = await while_connected(
            request, native.tokenizer.tokenize(_ADAPTER_IS_BASE, body.inputs, with_pieces=True)
        )
        return json_reply(_spans(body.inputs, found.tokens, found.pieces))


def _fact_routes(router: APIRouter, native: _Native, services: Services, prefix: str) -> None:
    tags: list[str | Enum] = ["Text Generation Inference"]

    @router.get(f"{prefix}/info", tags=tags, response_model=Info)
    async def info(request: Request) -> Response:
        """What runs here: the default model, which is loaded for it."""
        name, facts = await while_connected(request, native.models.facts(_ADAPTER_IS_BASE))
        body: Info = {
            "model_id": name,
            "model_sha": None,
            "model_pipeline_tag": "text-generation",
            "max_concurrent_requests": _MAX_CONCURRENT,
            "max_best_of": limits.MAX_BEST_OF,
            "max_stop_sequences": limits.MAX_STOP_SEQUENCES,
            "max_input_tokens": facts.n_ctx - 1,
            "max_total_tokens": facts.n_ctx,
            "validation_workers": limits.VALIDATION_WORKERS,
            "max_client_batch_size": limits.MAX_CLIENT_BATCH_SIZE,
            "router": "text-generation-router",
            "version": "3.3.6",
            "sha": None,
            "docker_label": f"jan-serve-{__version__}",
            "model_dtype": facts.description,
            "model_device_type": facts.device,
            "max_input_length": facts.n_ctx - 1,
            "waiting_served_ratio": 0.3,
            "max_batch_total_tokens": facts.n_ctx,
            "max_waiting_tokens": 20,
            "max_batch_size": facts.parallel,
        }
        return json_reply(body)

    if not prefix:

        @router.get("/ping", tags=tags, response_class=Response)
        async def ping() -> Response:
            """Alive."""
            return Response()

        return

    @router.get(f"{prefix}/health", tags=tags, response_class=Response)
    async def health() -> Response:
        """Alive: an empty 200, or 503 while a model is failed."""
        if any(model.state == "failed" for model in services.models.snapshot().models):
            return json_reply({"error": "unhealthy", "error_type": "healthcheck"}, 503)
        return Response()

    @router.get(f"{prefix}/v1/models", tags=tags)
    async def models(request: Request) -> Response:
        """The model that is served."""
        name, _ = await while_connected(request, native.models.facts(_ADAPTER_IS_BASE))
        entry = {"id": name, "object": "model", "created": 0, "owned_by": name}
        return json_reply({"object": "list", "data": [entry]})


async def _whole(
    request: Request, native: _Native, body: GenerateRequest, *, full_text: bool, as_list: bool
) -> Response:
    started = time.perf_counter()
    tokens = await while_connected(request, native.prepared(body, stream=False))
    validated = time.perf_counter()
    prefix = _prefix(body, full_text)
    answer = WholeAnswer(body, prefix=prefix, as_list=as_list)
    events = generate_batch(native.generation.generate, [generation_request(body, tokens)])
    response = await answer_whole(request, events, answer)
    response.headers.update(_timing_headers(body, answer, len(tokens), started, validated))
    return response


def _prefix(body: GenerateRequest, full_text: bool) -> str:
    wanted = body.parameters.return_full_text
    return body.inputs if (full_text if wanted is None else wanted) else ""


def _timing_headers(
    body: GenerateRequest, answer: WholeAnswer, n_input: int, started: float, validated: float
) -> dict[str, str]:
    timings = answer.completed.timings
    total_s = time.perf_counter() - started
    inference_s = timings.prefill_s + timings.decode_s
    generated = max(1, answer.generated_tokens)
    return {
        "x-compute-type": "cpu+optimized",
        "x-compute-time": f"{total_s:.6f}",
        "x-compute-characters": str(len(body.inputs)),
        "x-total-time": str(round(total_s * 1000)),
        "x-validation-time": str(round((validated - started) * 1000)),
        "x-queue-time": str(round(timings.queue_s * 1000)),
        "x-inference-time": str(round(inference_s * 1000)),
        "x-time-per-token": str(round(inference_s * 1000 / generated)),
        "x-prompt-tokens": str(n_input),
        "x-generated-tokens": str(answer.generated_tokens),
    }


async def _stream(request: Request, native: _Native, body: GenerateRequest, *, full_text: bool) -> Response:
    """Always 200: what goes wrong is an event."""
    try:
        tokens = await while_connected(request, native.prepared(body, stream=True))
        events = generate_batch(native.generation.generate, [generation_request(body, tokens)])
        renderer = TokenStream(body, prefix=_prefix(body, full_text))
        response = await answer_stream(request, events, renderer, error_body, native.streams, done=b"")
    except JanServeError as error:
        response = _failed_stream(request, error, native.streams)
    response.headers.update(
        {
            "x-compute-type": "cpu+optimized",
            "x-compute-characters": str(len(body.inputs)),
            "x-accel-buffering": "no",
        }
    )
    return response


def _failed_stream(request: Request, error: JanServeError, streams: StreamSettings) -> Response:
    problem = problem_of(error)
    record_of(request.scope).error = problem.code

    async def frames() -> AsyncIterator[bytes]:
        yield frame(error_body(problem))

    return EventStream(frames(), ping_s=streams.ping_s, write_timeout_s=streams.write_timeout_s)


def _spans(text: str, tokens: tuple[int, ...], pieces: tuple[bytes, ...]) -> list[SimpleToken]:
    """Where each token lies in the text's bytes. Tokens that were added lie nowhere."""
    data = text.encode()
    at = 0
    spans: list[SimpleToken] = []
    for token, piece in zip(tokens, pieces, strict=True):
        if piece and data.startswith(piece, at):
            end = at + len(piece)
            part = data[at:end].decode("utf-8", "replace")
            spans.append({"id": token, "text": part, "start": at, "stop": end})
            at = end
        else:
            spans.append({"id": token, "text": "", "start": 0, "stop": 0})
    return spans
