"""POST /v1/chat/completions: renders the answer, whole and as chunks."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from jan_serve.core.events import (
    Completed,
    Finished,
    FinishReason,
    GenerationEvent,
    ReasoningDelta,
    Started,
    TextDelta,
    TokenInfo,
    ToolCallDelta,
)
from jan_serve.core.transcript import random_uuid, started_s
from jan_serve.dialects.dialect import Services
from jan_serve.dialects.openai.chat.parse import chat_request, uses_functions
from jan_serve.dialects.openai.chat.wire import (
    ChatCompletionChunk,
    CreateChatCompletionRequest,
    CreateChatCompletionResponse,
    Delta,
    FunctionFragment,
    ResponseChoice,
    ResponseMessage,
    ResponseToolCall,
    ToolCallFragment,
)
from jan_serve.dialects.openai.parse_common import wants_usage
from jan_serve.dialects.openai.render_common import (
    FINGERPRINT,
    ReplyFacts,
    Reports,
    chat_logprobs,
    timings_of,
    usage_of,
)
from jan_serve.dialects.openai.wire_common import ReportFields
from jan_serve.dialects.shared.answers import FoldedAnswer, FoldedChoice, answer, answer_stream, stop_detail
from jan_serve.dialects.shared.default_error_body import error_body
from jan_serve.dialects.shared.resumable import ResumableStreams
from jan_serve.generation.service import GenerationService
from jan_serve.http.sse import STREAMED


class ChatForm(msgspec.Struct, frozen=True, kw_only=True):
    """functions: calls have the older form, at most one per answer."""

    n: int = 1
    logprobs: bool = False
    functions: bool = False
    include_usage: bool = False
    reports: ReportFields = ReportFields()

    def finish_reason(self, reason: FinishReason) -> str:
        if reason == "tool_calls" and self.functions:
            return "function_call"
        return "stop" if reason == "abort" else reason


class ChatRenderer(FoldedAnswer):
    """A stream has the role, thoughts, text and calls, the finish reason, then the usage on request."""

    def __init__(self, head: ReplyFacts, form: ChatForm) -> None:
        super().__init__(form.n)
        self._head = head
        self._form = form
        self._reports = Reports(form.reports, form.n)

    def body(self) -> CreateChatCompletionResponse:
        self._head.served_by(self.started.model)
        return {
            "id": self._head.id,
            "object": "chat.completion",
            "created": self._head.created,
            "model": self._head.model,
            "system_fingerprint": FINGERPRINT,
            "choices": [self._choice(index, choice) for index, choice in enumerate(self.choices)],
            "usage": usage_of(self.completed.usage),
            "timings": timings_of(self.completed),
        }

    def _choice(self, index: int, choice: FoldedChoice) -> ResponseChoice:
        return {
            "index": index,
            "message": self._message(choice),
            "logprobs": chat_logprobs(choice.tokens) if self._form.logprobs else None,
            "finish_reason": self._form.finish_reason(choice.reason),
            **stop_detail(choice.finished),
        }

    def _message(self, choice: FoldedChoice) -> ResponseMessage:
        message: ResponseMessage = {"role": "assistant", "content": choice.text}
        if choice.thoughts:
            message["reasoning_content"] = choice.thought
        if not choice.calls:
            return message
        message["content"] = choice.text or None
        calls: list[ResponseToolCall] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in choice.calls
        ]
        if self._form.functions:
            message["function_call"] = calls[0]["function"]
        else:
            message["tool_calls"] = calls
        return message

    def chunks(self, event: GenerationEvent) -> Iterator[ChatCompletionChunk]:
        return self._reports.added(event, self._chunks(event), self._opening)

    def _opening(self, index: int = 0) -> ChatCompletionChunk:
        return self._chunk(index, {"role": "assistant", "content": ""})

    def _chunks(self, event: GenerationEvent) -> Iterator[ChatCompletionChunk]:
        match event:
            case Started() as started:
                self._head.served_by(started.model)
                for index in range(self._form.n):
                    yield self._opening(index)
            case TextDelta() as delta if delta.text or (self._form.logprobs and delta.tokens):
                yield self._chunk(delta.index, {"content": delta.text}, tokens=delta.tokens)
            case ReasoningDelta() as delta if delta.text or (self._form.logprobs and delta.tokens):
                yield self._chunk(delta.index, {"reasoning_content": delta.text}, tokens=delta.tokens)
            case ToolCallDelta() as delta:
                yield self._chunk(delta.index, self._call_delta(delta))
            case Finished() as finished:
                yield self._chunk(finished.index, {}, finished=finished)
            case Completed() as completed if self._form.include_usage:
                yield {
                    **self._shell(),
                    "choices": [],
                    "usage": usage_of(completed.usage),
                    "timings": timings_of(completed),
                }
            case _:
                pass

    def _call_delta(self, delta: ToolCallDelta) -> Delta:
        function: FunctionFragment = {"arguments": delta.arguments}
        if delta.name is not None:
            function = {"name": delta.name, "arguments": delta.arguments}
        if self._form.functions:
            return {"function_call": function}
        fragment: ToolCallFragment = {"index": delta.call_index, "function": function}
        if delta.id is not None:
            fragment = {"index": delta.call_index, "id": delta.id, "type": "function", "function": function}
        return {"tool_calls": [fragment]}

    def _chunk(
        self,
        index: int,
        delta: Delta,
        *,
        tokens: tuple[TokenInfo, ...] = (),
        finished: Finished | None = None,
    ) -> ChatCompletionChunk:
        chunk = self._shell()
        chunk["choices"] = [
            {
                "index": index,
                "delta": delta,
                "logprobs": chat_logprobs(tokens) if self._form.logprobs and tokens else None,
                "finish_reason": None if finished is None else self._form.finish_reason(finished.reason),
                **stop_detail(finished),
            }
        ]
        return chunk

    def _shell(self) -> ChatCompletionChunk:
        shell: ChatCompletionChunk = {
            "id": self._head.id,
            "model": self._head.model,
            "created": self._head.created,
            "object": "chat.completion.chunk",
            "system_fingerprint": FINGERPRINT,
            "choices": [],
        }
        if self._form.include_usage:
            shell["usage"] = None
        return shell


def add_chat_route(
    router: APIRouter, services: Services, service: GenerationService, streams: ResumableStreams
) -> None:

    @router.post(
        "/v1/chat/completions",
        summary="Chat",
        response_model=CreateChatCompletionResponse,
        responses=STREAMED,
    )
    async def create_chat_completion(request: Request, body: CreateChatCompletionRequest) -> Response:
        """Answer the last message of a conversation."""
        generation = chat_request(body)
        resumed = await streams.opened(request) if body.stream else None
        head = ReplyFacts(f"chatcmpl-{random_uuid()}", started_s(), body.model)
        events = service.generate(generation)
        form = ChatForm(
            n=generation.n,
            logprobs=generation.logprobs is not None,
            functions=uses_functions(body),
            include_usage=wants_usage(body),
            reports=body,
        )
        renderer = ChatRenderer(head, form)
        if resumed is None:
            return await answer(request, events, renderer, error_body, services.streams, stream=body.stream)
        return await answer_stream(
            request,
            resumed.events(events),
            resumed.chunks(renderer.chunks),
            error_body,
            services.streams,
            framed=resumed.framed,
        )
