"""TGI's chat under /tgi. A tool call is a JSON object that the answer must be, not the model's own call format."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from functools import partial
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from jan_serve.core.closing import closing
from jan_serve.core.events import GenerationEvent
from jan_serve.core.request import ChatPrompt
from jan_serve.dialects.shared.answers import Chunks, Events
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
from jan_serve.dialects.tgi.generate.render import Collected, ReplyFacts
from jan_serve.dialects.tgi.generate.routes import prompt_tokens
from jan_serve.dialects.tgi.serving import (
    Job,
    NativeRequest,
    RequestLease,
    Serving,
    answer_headers,
    requested_model,
)
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
        if body.stream:
            begin = partial(_begun, lease, body, native, calls=bool(tools), may_decline=may_decline)
            return await serving.streamed(request, begin, in_band_error, done=DONE)
        job = await lease.job(native)
        answer = first = await while_connected(request, _collected(request, lease, job))
        call = read_call(answer.sequences[0].text) if tools else None
        if call is not None and call[0] == NO_TOOL and may_decline:
            call = None  # TGI reports the counts of the answer in which the model declined
            job = await lease.job(await while_connected(request, _rendered(lease, body, [])))
            answer = await while_connected(request, _collected(request, lease, job))
        reply = chat_reply(body, _facts(body, job), answer, call, first)
        return json_reply(reply, headers=answer_headers([job], [answer.timings], answer.generated_tokens))


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


def _facts(body: ChatRequest, job: Job) -> ReplyFacts:
    return ReplyFacts(requested_model(body.model) or job.model)


async def _collected(request: Request, lease: RequestLease, job: Job) -> Collected:
    record = record_of(request.scope)
    answer = Collected([job.ending])
    async with closing(lease.events([job])) as events:
        async for event in events:
            record.observe(event)
            answer.add(event)
    return answer


async def _begun(
    lease: RequestLease, body: ChatRequest, native: NativeRequest, *, calls: bool, may_decline: bool
) -> tuple[Sequence[Job], Events, Chunks]:
    """A stream: once the chat is rendered, TGI reports errors in it."""
    job = await lease.job(native)
    first: Events = lease.events([job])
    if not calls:
        return [job], lease.stream(first), ChatChunks(body, _facts(body, job), job.ending).chunks
    call = CallChunks(body, _facts(body, job), job.ending)
    shown: CallChunks | ChatChunks = call

    async def events() -> AsyncGenerator[GenerationEvent]:
        """Events of the call; or of the beginning of a call, which is not sent, and then of the text."""
        nonlocal shown
        async with closing(first):
            async for event in first:
                yield event
                if may_decline and call.declined:
                    break
            else:
                return
        job = await lease.job(await _rendered(lease, body, []), in_stream=True)
        shown = ChatChunks(body, _facts(body, job), job.ending)
        async with closing(lease.events([job])) as rest:
            async for event in rest:
                yield event

    return [job], lease.stream(events()), lambda event: shown.chunks(event)
