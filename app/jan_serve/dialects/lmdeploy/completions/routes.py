"""POST /v1/completions."""

from __future__ import annotations

import time
from enum import Enum
from typing import Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from jan_serve.dialects.lmdeploy.completions.parse import completion_requests
from jan_serve.dialects.lmdeploy.completions.render import (
    CompletionForm,
    CompletionRenderer,
)
from jan_serve.dialects.lmdeploy.completions.wire import CompletionReply, CompletionRequest
from jan_serve.dialects.lmdeploy.parse_common import requested_session, wants_usage
from jan_serve.dialects.lmdeploy.render_common import ReplyHead
from jan_serve.dialects.lmdeploy.send_answer import send_answer
from jan_serve.dialects.lmdeploy.services import LmdeployServices
from jan_serve.http.sse import SSE_RESPONSE

_TAGS: Final[list[str | Enum]] = ["LMDeploy"]


def add_completion_route(router: APIRouter, services: LmdeployServices, prefix: str) -> None:
    @router.post(
        f"{prefix}/v1/completions",
        tags=_TAGS,
        response_model=CompletionReply,
        responses={200: {"content": SSE_RESPONSE}},
    )
    async def completions(request: Request, body: CompletionRequest) -> Response:
        """Continue a text, or several."""
        requests = completion_requests(body)
        session = services.sessions.create(requested_session(body.session_id))
        head = ReplyHead(session, int(time.time()), body.model, shows_session=False)
        form = CompletionForm(
            choices=sum(generation.n for generation in requests),
            include_stop=requests[0].stopping.include_stop,
            token_ids=bool(body.return_token_ids),
            logprobs=requests[0].logprobs is not None,
            include_usage=wants_usage(body),
        )
        return await send_answer(request, services, session, body, requests, CompletionRenderer(head, form))
