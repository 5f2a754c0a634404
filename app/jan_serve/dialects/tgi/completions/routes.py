"""TGI's text completions under /tgi: several prompts at once, mixed in one stream."""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from jan_serve.core.events import Timings
from jan_serve.dialects.shared.answers import Chunks, Events, answer_whole
from jan_serve.dialects.tgi.completions.parse import completion_parameters, prompts_of
from jan_serve.dialects.tgi.completions.render import CompletionAnswer, CompletionChunks
from jan_serve.dialects.tgi.completions.wire import CompletionReply, CompletionRequest
from jan_serve.dialects.tgi.errors import in_band_error
from jan_serve.dialects.tgi.generate.routes import STREAMED
from jan_serve.dialects.tgi.headers import answer_headers
from jan_serve.dialects.tgi.job import Job, NativeRequest
from jan_serve.dialects.tgi.reply_head import ReplyHead, requested_model
from jan_serve.dialects.tgi.serving import Serving
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

        async def begin() -> tuple[Sequence[Job], Events, Chunks]:
            jobs = [await lease.job(native) for native in natives]
            chunks = CompletionChunks(ReplyHead(jobs[0].model), [job.ending for job in jobs])
            return jobs, lease.stream(lease.events(jobs)), chunks.chunks

        if body.stream:
            return await serving.streamed(request, begin, in_band_error, done=DONE)
        jobs = [await lease.job(native) for native in natives]
        answer = CompletionAnswer(ReplyHead(jobs[0].model), [job.ending for job in jobs])
        timings: list[Timings] = []
        response = await answer_whole(request, lease.events(jobs, timings), answer)
        headers = answer_headers(jobs, timings, answer.generated_tokens)
        del headers["x-compute-time"]
        response.headers.update(headers)
        return response
