"""TGI's chat under /tgi. A tool call is a JSON object that the answer must be, not the model's own call format."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from jan_serve.core.closing import closing
from jan_serve.core.events import Completed, Finished, GenerationEvent, Started, TextDelta, TokenInfo
from jan_serve.core.request import ChatPrompt
from jan_serve.dialects.shared.answers import Chunks, Events
from jan_serve.dialects.tgi.chat.parse import (
    NO_TOOL,
    Called,
    CalledFunction,
    ChatReply,
    ChatRequest,
    ChatTokenized,
    Choice,
    Logprobs,
    ReplyMessage,
    TokenLogprob,
    Tool,
    chat_messages,
    chat_parameters,
    continues_answer,
    core_tools,
    offered,
    read_call,
    tool_constraint,
    tool_prompt,
)
from jan_serve.dialects.tgi.errors import ToolFailed, in_band_error
from jan_serve.dialects.tgi.generate.parse import Usage
from jan_serve.dialects.tgi.generate.render import (
    Collected,
    Ending,
    ReplyFacts,
    TokenHold,
    TokenTexts,
    finish_reason,
    logprob_of,
    usage_of,
)
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


def _logprobs(body: ChatRequest, entries: Iterable[tuple[TokenInfo, str]]) -> Logprobs | None:
    """Log-probabilities of tokens, with their texts, if the request wants them."""
    return {"content": [_entry(info, text) for info, text in entries]} if body.logprobs else None


def _entry(info: TokenInfo, text: str) -> TokenLogprob:
    return {
        "token": text,
        "logprob": logprob_of(info),
        "top_logprobs": [
            {"token": entry.piece.decode("utf-8", "replace"), "logprob": entry.logprob} for entry in info.top
        ],
    }


def chat_reply(
    body: ChatRequest, head: ReplyFacts, answer: Collected, call: Called | None, counted: Collected
) -> dict[str, Any]:
    """The whole reply. counted: whose counts are reported."""
    [generated] = answer.sequences
    message: ReplyMessage = {"role": "assistant", "content": generated.text}
    if call is not None:
        function: CalledFunction = {"description": None, "name": call.name, "arguments": call.arguments}
        message = {"role": "assistant", "tool_calls": [{"id": "0", "type": "function", "function": function}]}
    texts = TokenTexts()
    choice: Choice = {
        "index": 0,
        "message": message,
        "logprobs": _logprobs(body, ((info, texts.text(info)) for info in generated.tokens)),
        "finish_reason": finish_reason(counted.sequences[0].reason),
    }
    return {**head.head("chat.completion"), "choices": [choice], "usage": counted.usage}


class ChatChunks:
    """The stream of a text: one chunk a token. The last one has the finish reason."""

    def __init__(self, body: ChatRequest, head: ReplyFacts, ending: Ending) -> None:
        self._body = body
        self._head = head
        self._hold = TokenHold(ending)
        self._texts = TokenTexts()
        self._prompt_tokens = 0

    def chunks(self, event: GenerationEvent) -> Iterator[dict[str, Any]]:
        match event:
            case Started() as started:
                self._prompt_tokens = started.prompt_tokens
            case (TextDelta() | Finished()) as choice:
                for info, reason in self._hold.tokens(choice):
                    text = self._texts.text(info)
                    delta = {"role": "assistant", "content": "" if info.special else text}
                    logprobs = _logprobs(self._body, [(info, text)])
                    yield _chunk(self._head, delta, logprobs, finish_reason(reason) or None)
            case Completed() if self._body.stream_options.include_usage:
                yield _usage_chunk(self._head, usage_of(self._prompt_tokens, self._hold.count))
            case _:
                pass


def _chunk(
    head: ReplyFacts, delta: dict[str, Any], logprobs: Logprobs | None = None, finish: str | None = None
) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "logprobs": logprobs, "finish_reason": finish}
    return {**head.head("chat.completion.chunk"), "choices": [choice], "usage": None}


def _usage_chunk(head: ReplyFacts, usage: Usage) -> dict[str, Any]:
    return {**head.head("chat.completion.chunk"), "choices": [], "usage": usage}


_HEAD: Final = re.compile(r'\s*\{\s*"function"\s*:\s*\{\s*"_name"\s*:\s*("(?:[^"\\]|\\.)*")\s*([,}])')
_MAY_END: Final = re.compile(r"[\s}]*\Z")


class CallPieces:
    """Reads `{"function":{"_name":"f",…}}`: the complete name, then the arguments without the outer brace."""

    def __init__(self) -> None:
        self.name: str | None = None
        self._text = ""

    def feed(self, text: str) -> str:
        """Add text. Returns the next certain part of the arguments, as JSON text."""
        self._text += text
        if self.name is not None:
            return self._released()
        found = _HEAD.match(self._text)
        if found is None:
            return ""
        self.name = json.loads(found[1])
        self._text = self._text[found.end() if found[2] == "," else found.start(2) :]
        return "{" + self._released()

    def finish(self, *, complete: bool) -> str:
        """Returns the rest, without the outer brace if the call is complete."""
        rest, self._text = self._text, ""
        return rest.rstrip().removesuffix("}").rstrip() if complete else rest

    def _released(self) -> str:
        """All but a possible end of the outer object."""
        ending = _MAY_END.search(self._text)
        at = len(self._text) if ending is None else ending.start()
        released, self._text = self._text[:at], self._text[at:]
        return released


class CallChunks:
    """The chunks of a call."""

    def __init__(self, body: ChatRequest, head: ReplyFacts, ending: Ending) -> None:
        self._body = body
        self._head = head
        self._pieces = CallPieces()
        self._collected = Collected([ending])
        self._id = next_call_id(body)

    @property
    def declined(self) -> bool:
        """The model chose to call no tool. Then no chunk was made."""
        return self._pieces.name == NO_TOOL

    def chunks(self, event: GenerationEvent) -> Iterator[dict[str, Any]]:
        """Raises ToolFailed if a limit cut the call off before its name."""
        self._collected.add(event)
        match event:
            case TextDelta() as delta:
                named = self._pieces.name is not None
                arguments = self._pieces.feed(delta.text)
                if arguments and not self.declined:
                    yield self._part(None if named else self._pieces.name, arguments)
            case Finished() if not self.declined:
                yield from self._end()
            case Completed() if not self.declined:
                if self._body.stream_options.include_usage:
                    yield _usage_chunk(self._head, self._collected.usage)
            case _:
                pass

    def _end(self) -> Iterator[dict[str, Any]]:
        reason = self._collected.sequences[0].reason
        if self._pieces.name is None:
            raise ToolFailed("Failed to parse generated text: the call was cut off before its name")
        rest = self._pieces.finish(complete=reason != "length")
        if rest:
            yield self._part(None, rest)
        # TGI sends no finish reason after a call, but agents wait for one.
        yield _chunk(self._head, {"role": "assistant", "content": ""}, finish=finish_reason(reason))

    def _part(self, name: str | None, arguments: str) -> dict[str, Any]:
        function = {"name": name, "arguments": arguments}
        part = {"index": 0, "id": self._id, "type": "function", "function": function}
        return _chunk(self._head, {"role": "assistant", "tool_calls": [part]})


def next_call_id(body: ChatRequest) -> str:
    """One more than the largest number among the calls of the chat so far; a new UUID if there is none."""
    ids = [str(call.get("id")) for message in body.messages for call in message.tool_calls or ()]
    numbers = [int(text) for text in ids if text.isascii() and text.isdigit() and len(text) < 10]
    return str(max(numbers) + 1) if numbers else str(uuid.uuid4())


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
        if call is not None and call.name == NO_TOOL and may_decline:
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
    switch = _Switch(lease, body, job, may_decline=may_decline)
    return [job], lease.stream(switch.events(first)), switch.chunks


class _Switch:
    """Stream of a call; if the model declines it, of the text that is then generated instead."""

    def __init__(self, lease: RequestLease, body: ChatRequest, job: Job, *, may_decline: bool) -> None:
        self._lease = lease
        self._body = body
        self._may_decline = may_decline
        self._call = CallChunks(body, _facts(body, job), job.ending)
        self._shown: CallChunks | ChatChunks = self._call

    async def events(self, first: Events) -> AsyncGenerator[GenerationEvent]:
        """Events of the call; or of the beginning of a call, which is not sent, and then of the text."""
        async with closing(first):
            async for event in first:
                yield event
                if self._may_decline and self._call.declined:
                    break
            else:
                return
        job = await self._lease.job(await _rendered(self._lease, self._body, []), in_stream=True)
        self._shown = ChatChunks(self._body, _facts(self._body, job), job.ending)
        async with closing(self._lease.events([job])) as rest:
            async for event in rest:
                yield event

    def chunks(self, event: GenerationEvent) -> Iterator[dict[str, Any]]:
        return self._shown.chunks(event)
