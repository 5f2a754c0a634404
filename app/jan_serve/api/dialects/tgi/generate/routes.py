"""TGI's native routes that generate or tokenise, at the root and under /tgi."""

from __future__ import annotations

from collections.abc import AsyncIterator
from enum import Enum
from typing import Any, Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from jan_serve.api.dialects.tgi.errors import stream_error_body
from jan_serve.api.dialects.tgi.generate.render import Ending, TokenStream, WholeAnswer
from jan_serve.api.dialects.tgi.generate.spans import spans
from jan_serve.api.dialects.tgi.generate.wire import (
    CompatRequest,
    GenerateRequest,
    GenerateResponse,
    SimpleToken,
)
from jan_serve.api.dialects.tgi.serving import Asked, Serving, answer_headers, stream_headers
from jan_serve.api.errors import problem_of
from jan_serve.api.http.disconnect import while_connected
from jan_serve.api.http.replies import json_reply
from jan_serve.api.http.request_record import record_of
from jan_serve.api.http.sse import SSE_RESPONSE, EventStream, frame
from jan_serve.api.shared.answers import answer_stream, answer_whole
from jan_serve.errors import JanServeError

TAGS: Final[list[str | Enum]] = ["Text Generation Inference"]
STREAMED: Final[dict[int | str, dict[str, Any]]] = {200: {"content": SSE_RESPONSE}}


def add_native_routes(router: APIRouter, serving: Serving, prefix: str) -> None:
    """Add them to the dialect's router."""

    @router.post(f"{prefix}/generate", tags=TAGS, response_model=GenerateResponse)
    async def generate(request: Request, body: GenerateRequest) -> Response:
        """Generate tokens."""
        return await _whole(request, serving, body, full_text=False, as_list=False)

    @router.post(f"{prefix}/generate_stream", tags=TAGS, response_class=Response, responses=STREAMED)
    async def generate_stream(request: Request, body: GenerateRequest) -> Response:
        """Generate a stream of tokens."""
        return await _stream(request, serving, body, full_text=False)

    async def compat(request: Request, body: CompatRequest) -> Response:
        """Generate tokens, or a stream of them where `stream` is true."""
        return await serve_compat(request, serving, body)

    for path in ("/",) if not prefix else (prefix, f"{prefix}/"):
        router.post(path, tags=TAGS, response_model=list[GenerateResponse], responses=STREAMED)(compat)

    @router.post(f"{prefix}/tokenize", tags=TAGS, response_model=list[SimpleToken])
    async def tokenize(request: Request, body: GenerateRequest) -> Response:
        """The tokens of a text, with the bytes that each covers."""
        found = await while_connected(
            request, serving.tokenizer.tokenize(None, body.inputs, with_pieces=True)
        )
        return json_reply(spans(body.inputs, found.tokens, found.pieces))


async def serve_compat(request: Request, serving: Serving, body: CompatRequest) -> Response:
    """POST /. Raises errors of the tree, and ClientGone."""
    if body.stream:
        return await _stream(request, serving, body, full_text=True)
    return await _whole(request, serving, body, full_text=True, as_list=True)


async def _whole(
    request: Request, serving: Serving, body: GenerateRequest, *, full_text: bool, as_list: bool
) -> Response:
    job = await serving.job(request, Asked(body.inputs, body.parameters))
    ending = Ending(job.max_new_tokens, job.eos)
    answer = WholeAnswer(body.parameters, ending, prefix=_prefix(body, full_text), as_list=as_list)
    response = await answer_whole(request, serving.events([job]), answer)
    response.headers.update(answer_headers([job], [answer.timings], [answer.generated_tokens]))
    return response


def _prefix(body: GenerateRequest, full_text: bool) -> str:
    wanted = body.parameters.return_full_text
    return body.inputs if (full_text if wanted is None else wanted) else ""


async def _stream(request: Request, serving: Serving, body: GenerateRequest, *, full_text: bool) -> Response:
    """Always 200: what goes wrong is an event."""
    try:
        job = await serving.job(request, Asked(body.inputs, body.parameters, stream=True))
        renderer = TokenStream(
            body.parameters, Ending(job.max_new_tokens, job.eos), prefix=_prefix(body, full_text)
        )
        response = await answer_stream(
            request, serving.events([job]), renderer, stream_error_body, serving.streams, done=b""
        )
        response.headers.update(stream_headers([job]))
    except JanServeError as error:
        return _failed_stream(request, serving, error)
    return response


def _failed_stream(request: Request, serving: Serving, error: JanServeError) -> Response:
    problem = problem_of(error)
    record_of(request.scope).error = problem.code

    async def frames() -> AsyncIterator[bytes]:
        yield frame(stream_error_body(problem))

    response = EventStream(frames(), serving.streams)
    response.headers.update(stream_headers([]))
    return response
