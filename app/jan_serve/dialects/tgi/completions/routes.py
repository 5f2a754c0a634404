"""TGI's text completions under /tgi: several prompts at once, mixed in one stream."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from jan_serve.core.events import Timings
from jan_serve.dialects.shared.answers import answer_stream, answer_whole
from jan_serve.dialects.tgi.completions.parse import completion_parameters, prompts_of
from jan_serve.dialects.tgi.completions.render import CompletionAnswer, CompletionChunks
from jan_serve.dialects.tgi.completions.wire import CompletionReply, CompletionRequest
from jan_serve.dialects.tgi.errors import in_band_error
from jan_serve.dialects.tgi.generate.routes import STREAMED
from jan_serve.dialects.tgi.headers import answer_headers, stream_headers
from jan_serve.dialects.tgi.job import NativeRequest
from jan_serve.dialects.tgi.reply_head import ReplyHead, requested_model
from jan_serve.dialects.tgi.serving import RequestLease, Serving
from jan_serve.errors import JanServeError
from jan_serve.http.sse import DONE


def add_completion_routes(router: APIRouter, serving: Serving) -> None:
    @router.post("/tgi/v1/completions", response_model=CompletionReply, responses=STREAMED)
    async def completions(request: Request, body: CompletionRequest) -> Response:
        """Continue a text, or several."""
        return await serve_completions(request, serving, body)


async def serve_completions(request: Request, serving: Serving, body: CompletionRequest) -> Response:
    """POST /v1/completions. Raises errors of the tree, and ClientGone."""
    serving.metrics.count("tgi_request_count")
    prompts = prompts_of(body, serving.limits.max_client_batch_size)
    parameters = completion_parameters(body)
    natives = [NativeRequest(prompt, parameters, stream=body.stream) for prompt in prompts]
    async with serving.lease(request, requested_model(body.model)) as lease:
        if body.stream:
            return await _streamed(request, serving, lease, natives)
        jobs = [await lease.job(native) for native in natives]
        answer = CompletionAnswer(ReplyHead(jobs[0].model), [job.ending for job in jobs])
        timings: list[Timings] = []
        response = await answer_whole(request, lease.events(jobs, timings), answer)
        headers = answer_headers(jobs, timings, answer.generated_tokens)
        del headers["x-compute-time"]
        response.headers.update(headers)
        return response


async def _streamed(
    request: Request, serving: Serving, lease: RequestLease, natives: list[NativeRequest]
) -> Response:
    try:
        jobs = [await lease.job(native) for native in natives]
        chunks = CompletionChunks(ReplyHead(jobs[0].model), [job.ending for job in jobs])
        events = lease.stream(lease.events(jobs))
        response = await answer_stream(
            request, events, chunks.chunks, in_band_error, serving.streams, done_after_error=True
        )
        response.headers.update(stream_headers(jobs))
    except JanServeError as error:
        return serving.failed_stream(request, error, in_band_error, done=DONE)
    return response
