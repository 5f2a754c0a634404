"""TGI's chat under /tgi. Its tools are a JSON object that the text has to be, not a format of the model's own."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass
from typing import Any, Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from jan_serve.api.dialects.tgi.chat.parse import (
    ChatChunks,
    Written,
    begun_answer,
    chat_messages,
    chat_parameters,
    chat_reply,
)
from jan_serve.api.dialects.tgi.chat.tool_stream import CallChunks
from jan_serve.api.dialects.tgi.chat.tools import (
    NO_TOOL,
    core_tools,
    offered,
    read_call,
    tool_constraint,
    tool_prompt,
)
from jan_serve.api.dialects.tgi.chat.wire import ChatReply, ChatRequest, ChatTokenized, Tool
from jan_serve.api.dialects.tgi.errors import error_body
from jan_serve.api.dialects.tgi.generate.render import Ending
from jan_serve.api.dialects.tgi.generate.routes import TAGS
from jan_serve.api.dialects.tgi.generate.spans import spans
from jan_serve.api.dialects.tgi.head import ReplyHead, asked_model
from jan_serve.api.dialects.tgi.serving import Asked, Job, Serving, answer_headers, stream_headers
from jan_serve.api.errors import Problem, problem_of
from jan_serve.api.http.disconnect import while_connected
from jan_serve.api.http.replies import json_reply
from jan_serve.api.http.request_record import record_of
from jan_serve.api.http.sse import DONE, SSE_RESPONSE, EventStream, frame
from jan_serve.api.shared.answers import Events, StreamRenderer, answer_stream, answer_whole
from jan_serve.core.request import ChatPrompt
from jan_serve.errors import JanServeError
from jan_serve.generation.batch import PromptEvent
from jan_serve.generation.closing import closing

_STREAMED: Final[dict[int | str, dict[str, Any]]] = {200: {"content": SSE_RESPONSE}}
_IN_BAND_STATUS: Final = 422


def add_chat_routes(router: APIRouter, serving: Serving) -> None:
    """Add them to the dialect's router."""

    @router.post("/tgi/v1/chat/completions", tags=TAGS, response_model=ChatReply, responses=_STREAMED)
    async def chat_completions(request: Request, body: ChatRequest) -> Response:
        """Answer the last message."""
        return await serve_chat(request, serving, body)

    for path in ("/chat_tokenize", "/tgi/chat_tokenize"):
        router.post(path, tags=TAGS, response_model=ChatTokenized)(_chat_tokenize(serving))


def _chat_tokenize(serving: Serving) -> Any:
    async def chat_tokenize(request: Request, body: ChatRequest) -> Response:
        """A chat as the text that the model would be given, and its tokens."""
        serving.metrics.count("tgi_request_count")
        asked = await while_connected(request, _asked(serving, body, offered(body)))
        found = await while_connected(
            request,
            serving.tokenizer.tokenize(asked.model, asked.inputs, add_special=False, with_pieces=True),
        )
        tokens = spans(asked.inputs, found.tokens, found.pieces)
        return json_reply({"tokenize_response": tokens, "templated_text": asked.inputs})

    return chat_tokenize


async def serve_chat(request: Request, serving: Serving, body: ChatRequest) -> Response:
    """POST /v1/chat/completions. Raises errors of the tree, and ClientGone."""
    serving.metrics.count("tgi_request_count")
    tools = offered(body)
    try:
        asked = await while_connected(request, _asked(serving, body, tools))
    except JanServeError as error:
        serving.metrics.failed(error)
        raise
    chat = _Chat(serving, body, may_decline=any(tool.function.name == NO_TOOL for tool in tools))
    if body.stream:
        return await _streamed(request, chat, asked, calls=bool(tools))
    job = await serving.job(request, asked)
    return await (_called(request, chat, job) if tools else _text(request, chat, job))


async def _asked(serving: Serving, body: ChatRequest, tools: list[Tool]) -> Asked:
    """Renders the chat. Without tools the answer is text, or what response_format says. Raises InvalidRequest."""
    parameters = chat_parameters(body)
    model = asked_model(body.model)
    shown = bool(tools) and await serving.templates.shows_tools(model)
    messages = chat_messages(body, tool_prompt(body, tools, shown=shown) if tools else "")
    prompt = ChatPrompt(messages=messages, tools=core_tools(tools) if shown else ())
    text = await serving.templates.apply(model, prompt)
    return Asked(
        inputs=text.rstrip() if begun_answer(body) else text,
        parameters=parameters,
        stream=body.stream,
        add_special=False,
        model=model,
        constraint=tool_constraint(tools) if tools else None,
    )


@dataclass(frozen=True, slots=True)
class _Chat:
    """A chat that is being answered. may_decline: the model may choose to call no tool."""

    serving: Serving
    body: ChatRequest
    may_decline: bool

    def head(self, job: Job) -> ReplyHead:
        return ReplyHead(asked_model(self.body.model) or job.model)

    async def without_tools(self) -> Asked:
        """The same chat to be answered by a text."""
        return await _asked(self.serving, self.body, [])


async def _text(request: Request, chat: _Chat, job: Job, first: Written | None = None) -> Response:
    """first: the pass in which tools were declined."""
    written = Written(ending_of(job))
    response = await answer_whole(
        request, chat.serving.events([job]), _Whole(written, lambda: _reply(chat, job, written, first))
    )
    response.headers.update(answer_headers([job], [written.timings], [len(written.generated.tokens)]))
    return response


def _reply(chat: _Chat, job: Job, written: Written, first: Written | None) -> ChatReply:
    return chat_reply(chat.body, chat.head(job), written, None, first)


async def _called(request: Request, chat: _Chat, job: Job) -> Response:
    written = await while_connected(request, _collected(request, chat, job))
    call = read_call(written.text)
    if call.name == NO_TOOL and chat.may_decline:
        again = await chat.serving.job(request, await while_connected(request, chat.without_tools()))
        return await _text(request, chat, again, written)
    headers = answer_headers([job], [written.timings], [len(written.generated.tokens)])
    return json_reply(chat_reply(chat.body, chat.head(job), written, call), headers=headers)


async def _collected(request: Request, chat: _Chat, job: Job) -> Written:
    record = record_of(request.scope)
    written = Written(ending_of(job))
    async with closing(chat.serving.events([job])) as events:
        async for event in events:
            record.observe(event.event)
            written.add(event)
    return written


async def _streamed(request: Request, chat: _Chat, asked: Asked, *, calls: bool) -> Response:
    """Once the chat is rendered, TGI tells what goes wrong in the stream."""
    serving = chat.serving
    try:
        job = await serving.job(request, asked)
        events = serving.events([job])
        renderer: StreamRenderer = ChatChunks(chat.body, chat.head(job), ending_of(job))
        if calls:
            switch = _Switch(chat, job)
            renderer, events = switch, switch.events(events)
        response = await answer_stream(
            request, events, renderer, in_band_error, serving.streams, done_after_error=True
        )
        response.headers.update(stream_headers([job]))
    except JanServeError as error:
        return failed_stream(request, serving, error)
    return response


class _Switch:
    """StreamRenderer of a call; where the model declines, of the text that is then generated in its place."""

    def __init__(self, chat: _Chat, job: Job) -> None:
        self._chat = chat
        self._calls = CallChunks(chat.body, chat.head(job), ending_of(job))
        self._text: ChatChunks | None = None

    async def events(self, first: Events) -> AsyncGenerator[PromptEvent]:
        """Of the call; or of the text, behind the beginning of a call that is not sent."""
        async with closing(first):
            async for event in first:
                yield event
                if self._chat.may_decline and self._calls.declined:
                    break
            else:
                return
        serving = self._chat.serving
        job = await serving.job(None, await self._chat.without_tools())
        self._text = ChatChunks(self._chat.body, self._chat.head(job), ending_of(job))
        async with closing(serving.events([job])) as events:
            async for event in events:
                yield event

    def chunks(self, event: PromptEvent) -> Any:
        """The chunks of one event."""
        return self._calls.chunks(event) if self._text is None else self._text.chunks(event)


def ending_of(job: Job) -> Ending:
    """How its answer ends."""
    return Ending(job.max_new_tokens, job.eos)


def in_band_error(problem: Problem) -> dict[str, Any]:
    """An error inside of a stream of /v1; its status is 422 whatever happened."""
    return {"error": {"message": error_body(problem)["error"], "http_status_code": _IN_BAND_STATUS}}


def failed_stream(request: Request, serving: Serving, error: JanServeError) -> Response:
    """A stream of one error."""
    record_of(request.scope).error = error.code

    async def frames() -> AsyncIterator[bytes]:
        yield frame(in_band_error(problem_of(error)))
        yield DONE

    response = EventStream(frames(), serving.streams)
    response.headers.update(stream_headers([]))
    return response


class _Whole:
    """WholeRenderer of a text."""

    def __init__(self, written: Written, reply: Any) -> None:
        self._written = written
        self._reply = reply

    def add(self, event: PromptEvent) -> None:
        """Take the next event."""
        self._written.add(event)

    def body(self) -> ChatReply:
        """The reply."""
        reply: ChatReply = self._reply()
        return reply
