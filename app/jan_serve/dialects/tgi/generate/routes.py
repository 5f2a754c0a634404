"""TGI's native routes that generate or tokenise, at the root and under /tgi."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from jan_serve.dialects.shared.answers import Chunks, Events, answer_whole
from jan_serve.dialects.tgi.errors import stream_error_body
from jan_serve.dialects.tgi.generate.render import TokenStream, WholeAnswer
from jan_serve.dialects.tgi.generate.tokens import prompt_tokens
from jan_serve.dialects.tgi.generate.wire import (
    CompatRequest,
    GenerateRequest,
    GenerateResponse,
    SimpleToken,
)
from jan_serve.dialects.tgi.headers import answer_headers
from jan_serve.dialects.tgi.job import Job, NativeRequest
from jan_serve.dialects.tgi.serving import RequestLease, Serving
from jan_serve.http.disconnect import while_connected
from jan_serve.http.replies import json_reply
from jan_serve.http.sse import SSE_RESPONSE

STREAMED: Final[dict[int | str, dict[str, Any]]] = {200: {"content": SSE_RESPONSE}}


def add_native_routes(router: APIRouter, serving: Serving, prefix: str) -> None:
    @router.post(f"{prefix}/generate", response_model=GenerateResponse)
    async def generate(request: Request, body: GenerateRequest) -> Response:
        """Generate tokens."""
        return await _whole(request, serving, body, full_text=False, as_list=False)

    @router.post(f"{prefix}/generate_stream", response_class=Response, responses=STREAMED)
    async def generate_stream(request: Request, body: GenerateRequest) -> Response:
        """Generate a stream of tokens."""
        return await _stream(request, serving, body, full_text=False)

    async def compat(request: Request, body: CompatRequest) -> Response:
        """Generate tokens, or a stream of them where `stream` is true."""
        return await serve_compat(request, serving, body)

    for path in ("/",) if not prefix else (prefix, f"{prefix}/"):
        router.post(path, response_model=list[GenerateResponse], responses=STREAMED)(compat)

    @router.post(f"{prefix}/tokenize", response_model=list[SimpleToken])
    async def tokenize(request: Request, body: GenerateRequest) -> Response:
        """The tokens of a text, with the bytes that each covers."""

        async def tokenized(lease: RequestLease) -> list[SimpleToken]:
            return await prompt_tokens(await lease.model(), body.inputs)

        async with serving.lease(request) as lease:
            return json_reply(await while_connected(request, tokenized(lease)))


async def serve_compat(request: Request, serving: Serving, body: CompatRequest) -> Response:
    """POST /. Raises errors of the tree, and ClientGone."""
    if body.stream:
        return await _stream(request, serving, body, full_text=True)
    return await _whole(request, serving, body, full_text=True, as_list=True)


async def _whole(
    request: Request, serving: Serving, body: GenerateRequest, *, full_text: bool, as_list: bool
) -> Response:
    async with serving.lease(request) as lease:
        job = await lease.job(NativeRequest(body.inputs, body.parameters))
        answer = WholeAnswer(body.parameters, job.ending, prefix=_prefix(body, full_text), as_list=as_list)
        response = await answer_whole(request, lease.events([job]), answer)
        response.headers.update(answer_headers([job], [answer.timings], [answer.generated_tokens]))
        return response


def _prefix(body: GenerateRequest, full_text: bool) -> str:
    wanted = body.parameters.return_full_text
    return body.inputs if (full_text if wanted is None else wanted) else ""


async def _stream(request: Request, serving: Serving, body: GenerateRequest, *, full_text: bool) -> Response:
    """Always 200: errors are events."""
    async with serving.lease(request) as lease:

        async def begin() -> tuple[Sequence[Job], Events, Chunks]:
            job = await lease.job(NativeRequest(body.inputs, body.parameters, stream=True))
            renderer = TokenStream(body.parameters, job.ending, prefix=_prefix(body, full_text))
            return [job], lease.stream(lease.events([job])), renderer.chunks

        return await serving.streamed(request, begin, stream_error_body, done=b"")
