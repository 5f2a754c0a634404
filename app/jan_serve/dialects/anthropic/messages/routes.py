"""POST /v1/messages and /v1/messages/count_tokens."""

from __future__ import annotations

import secrets

import msgspec
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from jan_serve.core.request import ChatPrompt
from jan_serve.dialects.anthropic.errors import REQUEST_ID_HEADER, AnthropicError, error_body
from jan_serve.dialects.anthropic.messages.parse import chat_prompt, message_request
from jan_serve.dialects.anthropic.messages.render import PING, MessageEvents
from jan_serve.dialects.anthropic.messages.wire import CountTokensRequest, CreateMessageRequest
from jan_serve.dialects.anthropic.messages.wire_reply import MessageBody, TokenCount
from jan_serve.dialects.dialect import Services
from jan_serve.dialects.shared.answers import answer
from jan_serve.generation.service import GenerationService
from jan_serve.http.disconnect import while_connected
from jan_serve.http.errors import Problem
from jan_serve.http.replies import json_reply, named_frame
from jan_serve.http.request_record import record_of
from jan_serve.http.sse import SSE_RESPONSE

_ID_BYTES = 12


def add_message_routes(
    router: APIRouter, services: Services, service: GenerationService, *, strip_billing_line: bool
) -> None:
    streams = msgspec.structs.replace(services.streams, ping=PING)

    @router.post(
        "/v1/messages",
        summary="Message",
        response_model=MessageBody,
        responses={200: {"content": SSE_RESPONSE}},
    )
    async def create_message(request: Request, body: CreateMessageRequest) -> Response:
        """Continue a conversation, in the form of Anthropic's Messages API."""
        parsed = message_request(body, strip_billing_line=strip_billing_line)
        events = service.generate(parsed.generation)
        renderer = MessageEvents(
            f"msg_{secrets.token_hex(_ID_BYTES)}", body.model, shows_thoughts=parsed.shows_thoughts
        )
        request_id = record_of(request.scope).request_id

        def render_error(problem: Problem) -> AnthropicError:
            return error_body(msgspec.structs.replace(problem, request_id=request_id))

        response = await answer(
            request, events, renderer, render_error, streams, stream=body.stream, done=b"", framed=named_frame
        )
        response.headers[REQUEST_ID_HEADER] = request_id
        return response

    async def count(model_name: str, prompt: ChatPrompt) -> int:
        async with service.open(model_name or None) as model:
            return await model.count(prompt, model_name or None)

    @router.post("/v1/messages/count_tokens", summary="Count tokens", response_model=TokenCount)
    async def count_tokens(request: Request, body: CountTokensRequest) -> Response:
        """Count the tokens of the prompt, including tools. Loads the model."""
        record = record_of(request.scope)
        parsed = chat_prompt(body, strip_billing_line=strip_billing_line)
        record.warnings = parsed.warnings
        tokens = await while_connected(request, count(body.model, parsed.prompt))
        return json_reply({"input_tokens": tokens}, headers={REQUEST_ID_HEADER: record.request_id})
