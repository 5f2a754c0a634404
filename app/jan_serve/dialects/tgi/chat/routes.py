"""TGI's chat under /tgi. A tool call is a JSON object that the answer must be, not the model's own call format."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Any

import msgspec
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from jan_serve.core.closing import closing
from jan_serve.core.events import GenerationEvent
from jan_serve.core.request import ChatPrompt
from jan_serve.dialects.shared.answers import Chunks, Events, answer_whole
from jan_serve.dialects.tgi.chat.parse import (
    NO_TOOL,
    chat_messages,
    chat_parameters,
    continues_answer,
    core_tools,
    offered,
    read_call,
    tool_constraint,
    tool_prompt,
)
from jan_serve.dialects.tgi.chat.render import CallChunks, ChatChunks, chat_reply
from jan_serve.dialects.tgi.chat.wire import ChatReply, ChatRequest, ChatTokenized, Tool
from jan_serve.dialects.tgi.errors import in_band_error
from jan_serve.dialects.tgi.generate.render import Collected
from jan_serve.dialects.tgi.generate.routes import prompt_tokens
from jan_serve.dialects.tgi.job import Job, NativeRequest, answer_headers
from jan_serve.dialects.tgi.reply_facts import ReplyFacts, requested_model
from jan_serve.dialects.tgi.serving import RequestLease, Serving
from jan_serve.errors import JanServeError
from jan_serve.http.disconnect import while_connected
from jan_serve.http.replies import json_reply
from jan_serve.http.request_record import record_of
from jan_serve.http.sse import DONE, STREAMED


def add_chat_routes(router: APIRouter, serving: Serving) -> None:
    @router.post("/tgi/v1/chat/completions", response_model=ChatReply, responses=STREAMED)
    async def chat_completions(request: Request, body: ChatRequest) -> Response:
        """Answer the last message."""
        return await serve_chat(request, serving, body)

    for path in ("/chat_tokenize", "/tgi/chat_tokenize"):
        router.post(path, response_model=ChatTokenized)(_chat_tokenize(serving))


def _chat_tokenize(serving: Serving) -> Any:
    async def tokenized(lease: RequestLease, body: ChatRequest) -> ChatTokenized:
        native = await _rendered(lease, body, offered(body))
        model = await lease.model()
        tokens = await prompt_tokens(model, native.inputs, add_special=False)
        return {"tokenize_response": tokens, "templated_text": native.inputs}

    async def chat_tokenize(request: Request, body: ChatRequest) -> Response:
        """A chat as the text that the model would be given, and its tokens."""
        serving.metrics.count("tgi_request_count")
        async with serving.lease(request, requested_model(body.model)) as lease:
            return json_reply(await while_connected(request, tokenized(lease, body)))

    return chat_tokenize


async def serve_chat(request: Request, serving: Serving, body: ChatRequest) -> Response:
    """POST /v1/chat/completions. Raises errors of the tree, and ClientGone."""
    serving.metrics.count("tgi_request_count")
    tools = offered(body)
    may_decline = any(tool.function.name == NO_TOOL for tool in tools)
    async with serving.lease(request, requested_model(body.model)) as lease:
        try:
            native = await while_connected(request, _rendered(lease, body, tools))
        except JanServeError as error:
            serving.metrics.failed(error)
            raise
        chat = _Chat(serving, lease, body, may_decline)
        if body.stream:
            return await _streamed(request, chat, native, calls=bool(tools))
        job = await lease.job(native)
        return await (_called(request, chat, job) if tools else _text(request, chat, job))


async def _rendered(lease: RequestLease, body: ChatRequest, tools: list[Tool]) -> NativeRequest:
    """Without tools the answer is text, or what response_format requires. Raises InvalidRequest."""
    parameters = chat_parameters(body)
    shown = bool(tools) and (await lease.model()).shows_tools(lease.model_name)
    messages = chat_messages(body, tool_prompt(body, tools, shown=shown) if tools else "")
    model = await lease.model()
    prompt = ChatPrompt(messages=messages, tools=core_tools(tools) if shown else ())
    text = await model.chat_text(prompt, lease.model_name)
    return NativeRequest(
        inputs=text.rstrip() if continues_answer(body) else text,
        parameters=parameters,
        stream=body.stream,
        add_special=False,
        constraint=tool_constraint(tools) if tools else None,
    )


class _Chat(msgspec.Struct, frozen=True):
    """A chat and its lease. may_decline: the model may choose to call no tool."""

    serving: Serving
    lease: RequestLease
    body: ChatRequest
    may_decline: bool

    def head(self, job: Job) -> ReplyFacts:
        return ReplyFacts(requested_model(self.body.model) or job.model)

    async def without_tools(self) -> NativeRequest:
        """The same chat, for an answer in text."""
        return await _rendered(self.lease, self.body, [])


async def _text(request: Request, chat: _Chat, job: Job, first: Collected | None = None) -> Response:
    """first: the answer in which the model declined the tools."""
    answer = _TextAnswer(chat, job, first)
    response = await answer_whole(request, chat.lease.events([job]), answer)
    response.headers.update(_headers(job, answer))
    return response


def _headers(job: Job, answer: Collected) -> dict[str, str]:
    return answer_headers([job], [answer.timings], answer.generated_tokens)


class _TextAnswer(Collected):
    def __init__(self, chat: _Chat, job: Job, first: Collected | None) -> None:
        super().__init__([job.ending])
        self._chat = chat
        self._job = job
        self._first = first

    def body(self) -> ChatReply:
        return chat_reply(self._chat.body, self._chat.head(self._job), self, None, self._first)


async def _called(request: Request, chat: _Chat, job: Job) -> Response:
    answer = await while_connected(request, _collected(request, chat, job))
    call = read_call(answer.sequences[0].text)
    if call.name == NO_TOOL and chat.may_decline:
        native = await while_connected(request, chat.without_tools())
        return await _text(request, chat, await chat.lease.job(native), answer)
    return json_reply(chat_reply(chat.body, chat.head(job), answer, call), headers=_headers(job, answer))


async def _collected(request: Request, chat: _Chat, job: Job) -> Collected:
    record = record_of(request.scope)
    answer = Collected([job.ending])
    async with closing(chat.lease.events([job])) as events:
        async for event in events:
            record.observe(event)
            answer.add(event)
    return answer


async def _streamed(request: Request, chat: _Chat, native: NativeRequest, *, calls: bool) -> Response:
    """Once the chat is rendered, TGI reports errors in the stream."""

    async def begin() -> tuple[Sequence[Job], Events, Chunks]:
        job = await chat.lease.job(native)
        events: Events = chat.lease.events([job])
        chunks: Chunks = ChatChunks(chat.body, chat.head(job), job.ending).chunks
        if calls:
            switch = _Switch(chat, job)
            chunks, events = switch.chunks, switch.events(events)
        return [job], chat.lease.stream(events), chunks

    return await chat.serving.streamed(request, begin, in_band_error, done=DONE)


class _Switch:
    """Stream of a call; if the model declines it, of the text that is then generated instead."""

    def __init__(self, chat: _Chat, job: Job) -> None:
        self._chat = chat
        self._calls = CallChunks(chat.body, chat.head(job), job.ending)
        self._text: ChatChunks | None = None

    async def events(self, first: Events) -> AsyncGenerator[GenerationEvent]:
        """Events of the call; or of the beginning of a call, which is not sent, and then of the text."""
        async with closing(first):
            async for event in first:
                yield event
                if self._chat.may_decline and self._calls.declined:
                    break
            else:
                return
        lease = self._chat.lease
        job = await lease.job(await self._chat.without_tools(), in_stream=True)
        self._text = ChatChunks(self._chat.body, self._chat.head(job), job.ending)
        async with closing(lease.events([job])) as events:
            async for event in events:
                yield event

    def chunks(self, event: GenerationEvent) -> Any:
        return self._calls.chunks(event) if self._text is None else self._text.chunks(event)
