"""POST /v1/completions."""

from __future__ import annotations

import time
import uuid
from functools import partial

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from jan_serve.dialects.dialect import Services
from jan_serve.dialects.openai.completions.parse import completion_requests, prompt_items
from jan_serve.dialects.openai.completions.render import (
    CompletionForm,
    CompletionRenderer,
)
from jan_serve.dialects.openai.completions.wire import CreateCompletionRequest, CreateCompletionResponse
from jan_serve.dialects.openai.parse_common import wants_usage
from jan_serve.dialects.openai.render_common import ReplyHead
from jan_serve.dialects.shared.answers import answer
from jan_serve.dialects.shared.default_errors import error_body
from jan_serve.generation.batch import generate_batch
from jan_serve.generation.leased_model import LeasedModel
from jan_serve.generation.service import GenerationService
from jan_serve.http.disconnect import while_connected
from jan_serve.http.sse import SSE_RESPONSE


def add_completion_route(router: APIRouter, services: Services, service: GenerationService) -> None:

    @router.post(
        "/v1/completions",
        tags=["OpenAI V1"],
        summary="Completion",
        response_model=CreateCompletionResponse,
        responses={200: {"content": SSE_RESPONSE}},
    )
    async def create_completion(request: Request, body: CreateCompletionRequest) -> Response:
        """Continue a text, or several."""
        requests = completion_requests(body)
        head = ReplyHead(f"cmpl-{uuid.uuid4()}", int(time.time()), body.model)
        prompts: list[str] = []
        for item in prompt_items(body) if body.echo or body.logprobs is not None else ():
            if isinstance(item, tuple):
                work = service.with_model(requests[0].model, partial(LeasedModel.detokenize, tokens=item))
                item = await while_connected(request, work)
            prompts.append(item)
        form = CompletionForm(
            prompts, requests[0].n, body.echo, body.suffix, body.logprobs is not None, wants_usage(body)
        )
        events = generate_batch(service.generate, requests)
        renderer = CompletionRenderer(head, form)
        return await answer(request, events, renderer, error_body, services.streams, stream=body.stream)
