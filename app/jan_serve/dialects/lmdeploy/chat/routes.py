"""POST /v1/chat/completions."""

from __future__ import annotations

import time
from enum import Enum
from typing import Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from jan_serve.dialects.lmdeploy.chat.parse import chat_request
from jan_serve.dialects.lmdeploy.chat.render import ChatForm, ChatRenderer
from jan_serve.dialects.lmdeploy.chat.wire import ChatReply, ChatRequest
from jan_serve.dialects.lmdeploy.parse_common import check_bias, requested_session, wants_usage
from jan_serve.dialects.lmdeploy.render_common import ReplyHead
from jan_serve.dialects.lmdeploy.send_answer import send_answer
from jan_serve.dialects.lmdeploy.services import LmdeployServices
from jan_serve.http.disconnect import while_connected
from jan_serve.http.sse import SSE_RESPONSE

_TAGS: Final[list[str | Enum]] = ["LMDeploy"]


def add_chat_route(router: APIRouter, services: LmdeployServices, prefix: str) -> None:
    @router.post(
        f"{prefix}/v1/chat/completions",
        tags=_TAGS,
        response_model=ChatReply,
        responses={200: {"content": SSE_RESPONSE}},
    )
    async def chat_completions(request: Request, body: ChatRequest) -> Response:
        """Answer the last message of a conversation."""
        generation = chat_request(body)
        bias = generation.sampling.logit_bias
        if bias:
            _, facts = await while_connected(request, services.generation.facts(generation.model))
            check_bias(bias, facts.n_vocab)
        session = services.sessions.create(requested_session(body.session_id))
        head = ReplyHead(session, int(time.time()), body.model)
        form = ChatForm(
            choices=generation.n,
            include_stop=generation.stopping.include_stop,
            token_ids=bool(body.return_token_ids),
            top=None if generation.logprobs is None else body.top_logprobs,
            include_usage=wants_usage(body),
        )
        return await send_answer(request, services, session, body, [generation], ChatRenderer(head, form))
