"""TGI's text completions under /tgi: several prompts at once, mixed in one stream."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from jan_serve.api.dialects.tgi.chat.routes import ending_of, failed_stream, in_band_error
from jan_serve.api.dialects.tgi.completions.parse import (
    CompletionAnswer,
    CompletionChunks,
    completion_parameters,
    prompts_of,
)
from jan_serve.api.dialects.tgi.completions.wire import CompletionReply, CompletionRequest
from jan_serve.api.dialects.tgi.generate.routes import STREAMED, TAGS
from jan_serve.api.dialects.tgi.head import ReplyHead, asked_model
from jan_serve.api.dialects.tgi.serving import Asked, Serving, answer_headers, stream_headers
from jan_serve.api.shared.answers import answer_stream, answer_whole
from jan_serve.core.events import Timings
from jan_serve.errors import JanServeError


def add_completion_routes(router: APIRouter, serving: Serving) -> None:
    """Add them to the dialect's router."""

    @router.post("/tgi/v1/completions", tags=TAGS, response_model=CompletionReply, responses=STREAMED)
    async def completions(request: Request, body: CompletionRequest) -> Response:
        """Continue a text, or several."""
        return await serve_completions(request, serving, body)


async def serve_completions(request: Request, serving: Serving, body: CompletionRequest) -> Response:
    """POST /v1/completions. Raises errors of the tree, and ClientGone."""
    serving.metrics.count("tgi_request_count")
    prompts = prompts_of(body, serving.limits.max_client_batch_size)
    parameters, model = completion_parameters(body), asked_model(body.model)
    asked = [Asked(prompt, parameters, stream=body.stream, model=model) for prompt in prompts]
    if body.stream:
        return await _streamed(request, serving, asked)
    jobs = [await serving.job(request, each) for each in asked]
    answer = CompletionAnswer(ReplyHead(jobs[0].model), [ending_of(job) for job in jobs])
    timings: list[Timings] = []
    response = await answer_whole(request, serving.events(jobs, timings), answer)
    headers = answer_headers(jobs, timings, answer.generated_tokens)
    del headers["x-compute-time"]
    response.headers.update(headers)
    return response


async def _streamed(request: Request, serving: Serving, asked: list[Asked]) -> Response:
    try:
        jobs = [await serving.job(request, each) for each in asked]
        chunks = CompletionChunks(ReplyHead(jobs[0].model), [ending_of(job) for job in jobs])
        response = await answer_stream(
            request, serving.events(jobs), chunks, in_band_error, serving.streams, done_after_error=True
        )
        response.headers.update(stream_headers(jobs))
    except JanServeError as error:
        return failed_stream(request, serving, error)
    return response
