"""POST /generate."""

from __future__ import annotations

from enum import Enum
from typing import Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from jan_serve.dialects.lmdeploy.generate.parse import generate_request
from jan_serve.dialects.lmdeploy.generate.render import GenerateRenderer
from jan_serve.dialects.lmdeploy.generate.wire import GenerateReply, GenerateRequest
from jan_serve.dialects.lmdeploy.parse_common import requested_session
from jan_serve.dialects.lmdeploy.send_answer import send_answer
from jan_serve.dialects.lmdeploy.services import LmdeployServices
from jan_serve.http.sse import SSE_RESPONSE

_TAGS: Final[list[str | Enum]] = ["LMDeploy"]


def add_generate_route(router: APIRouter, services: LmdeployServices, prefix: str) -> None:
    @router.post(
        f"{prefix}/generate",
        tags=_TAGS,
        response_model=GenerateReply,
        responses={200: {"content": SSE_RESPONSE}},
    )
    async def generate(request: Request, body: GenerateRequest) -> Response:
        """Continue a text or token ids with the default model, without a template."""
        generation = generate_request(body)
        session = services.sessions.create(requested_session(body.session_id))
        renderer = GenerateRenderer(
            include_stop=generation.stopping.include_stop, logprobs=bool(body.return_logprob)
        )
        return await send_answer(request, services, session, body, [generation], renderer)
