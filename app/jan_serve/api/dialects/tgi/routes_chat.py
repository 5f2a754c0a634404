"""TGI's chat under /tgi. Its tools are a JSON object that the text has to be, not a format of the model's own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any, Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from jan_serve.api.answers import Events, answer_stream, answer_whole
from jan_serve.api.dialect import StreamSettings
from jan_serve.api.dialects.tgi.chat import ChatRenderer, Written, chat_generation, chat_messages
from jan_serve.api.dialects.tgi.errors import error_body
from jan_serve.api.dialects.tgi.tools import (
    NO_TOOL,
    Called,
    may_decline,
    offered,
    read_call,
    tool_constraint,
    tool_prompt,
)
from jan_serve.api.dialects.tgi.validation import constraint_of
from jan_serve.api.dialects.tgi.wire_chat import ChatChunk, ChatReply, ChatRequest, Tool
from jan_serve.api.disconnect import while_connected
from jan_serve.api.errors import Problem, problem_of
from jan_serve.api.replies import json_reply
from jan_serve.api.request_record import record_of
from jan_serve.api.sse import DONE, SSE_RESPONSE, EventStream, frame
from jan_serve.core import messages as core
from jan_serve.core.request import ChatPrompt, GenerationRequest
from jan_serve.errors import JanServeError, TemplateError
from jan_serve.generation.batch import PromptEvent, generate_batch
from jan_serve.generation.closing import closing
from jan_serve.generation.service import GenerationService
from jan_serve.generation.templates import TemplateService

_STREAMED: Final[dict[int | str, dict[str, Any]]] = {200: {"content": SSE_RESPONSE}}
_IN_BAND_STATUS: Final = 422


@dataclass(frozen=True, slots=True)
class ChatServices:
    """What the route works with."""

    generation: GenerationService
    templates: TemplateService
    streams: StreamSettings

    async def generation_of(self, body: ChatRequest, tools: list[Tool]) -> GenerationRequest:
        """Renders the chat. Without tools the answer is text, or what response_format says. Raises InvalidRequest."""
        messages = chat_messages(body, tool_prompt(body) if tools else "")
        text = await self.templates.apply(None, ChatPrompt(messages=messages, tools=_core_tools(tools)))
        if tools:
            return chat_generation(body, text, tool_constraint(tools, decline=may_decline(body)))
        return chat_generation(body, text, constraint_of(body.response_format))


def _core_tools(tools: list[Tool]) -> tuple[core.Tool, ...]:
    return tuple(
        core.Tool(
            name=tool.function.name,
            description=tool.function.description,
            parameters=tool.function.parameters,
        )
        for tool in tools
    )


def add_chat_routes(router: APIRouter, services: ChatServices, prefix: str) -> None:
    """Add them to the dialect's router."""

    @router.post(
        f"{prefix}/v1/chat/completions",
        tags=["Text Generation Inference"],
        response_model=ChatReply,
        responses=_STREAMED,
    )
    async def chat_completions(request: Request, body: ChatRequest) -> Response:
        """Answer the last message."""
        tools = offered(body)
        generation = await while_connected(request, services.generation_of(body, tools))
        name, _ = await while_connected(request, services.templates.facts(None))
        renderer = ChatRenderer(body, name)
        if tools:
            return await _with_tools(request, services, body, generation, renderer)
        events = generate_batch(services.generation.generate, [generation])
        return await _text(request, services, events, renderer, stream=body.stream)


async def _text(
    request: Request, services: ChatServices, events: Events, renderer: ChatRenderer, *, stream: bool
) -> Response:
    if not stream:
        return await answer_whole(request, events, _Whole(renderer))
    try:
        return await answer_stream(request, events, _Chunks(renderer), in_band_error, services.streams)
    except JanServeError as error:
        if isinstance(error, TemplateError):
            raise
        # Once the chat is rendered, TGI tells what goes wrong in the stream.
        record_of(request.scope).error = error.code
        return _frames([frame(in_band_error(problem_of(error))), DONE], services.streams)


async def _with_tools(
    request: Request,
    services: ChatServices,
    body: ChatRequest,
    generation: GenerationRequest,
    renderer: ChatRenderer,
) -> Response:
    """The call comes whole, since its name decides what is sent. Declined, the chat is answered again without tools."""
    first = await while_connected(request, _collected(request, services, generation))
    call = read_call(first.text)
    if call.name != NO_TOOL:
        return _called(services, body, renderer, call, first)
    again = await while_connected(request, services.generation_of(body, []))
    events = generate_batch(services.generation.generate, [again])
    if body.stream:
        return await _text(request, services, events, renderer, stream=True)
    return await answer_whole(request, events, _Whole(renderer, first))


def _called(
    services: ChatServices, body: ChatRequest, renderer: ChatRenderer, call: Called, written: Written
) -> Response:
    if not body.stream:
        return json_reply(renderer.whole(written, call))
    chunks = [frame(chunk) for chunk in renderer.call_chunks(call, written)]
    return _frames([*chunks, DONE], services.streams)


async def _collected(request: Request, services: ChatServices, generation: GenerationRequest) -> Written:
    record = record_of(request.scope)
    written = Written()
    async with closing(generate_batch(services.generation.generate, [generation])) as events:
        async for event in events:
            record.observe(event.event)
            written.add(event)
    return written


def in_band_error(problem: Problem) -> dict[str, Any]:
    """An error inside of a chat's stream; its status is 422 whatever happened."""
    return {"error": {"message": error_body(problem)["error"], "http_status_code": _IN_BAND_STATUS}}


def _frames(frames: list[bytes], streams: StreamSettings) -> Response:
    async def sent() -> AsyncIterator[bytes]:
        for each in frames:
            yield each

    return EventStream(sent(), ping_s=streams.ping_s, write_timeout_s=streams.write_timeout_s)


class _Whole:
    """WholeRenderer of a text. first: the pass in which tools were declined."""

    def __init__(self, renderer: ChatRenderer, first: Written | None = None) -> None:
        self._renderer = renderer
        self._first = first
        self._written = Written()

    def add(self, event: PromptEvent) -> None:
        """Take the next event."""
        self._written.add(event)

    def body(self) -> ChatReply:
        """The reply."""
        return self._renderer.whole(self._written, None, self._first)


class _Chunks:
    """StreamRenderer of a text."""

    def __init__(self, renderer: ChatRenderer) -> None:
        self._renderer = renderer
        self._written = Written()

    def chunks(self, event: PromptEvent) -> Iterator[ChatChunk]:
        """The chunks of one event."""
        self._written.add(event)
        return self._renderer.text_chunks(event, self._written)
