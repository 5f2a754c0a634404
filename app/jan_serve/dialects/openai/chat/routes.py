"""POST /v1/chat/completions: renders the answer, whole and as chunks."""

from __future__ import annotations

from collections.abc import Iterator

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from jan_serve.core import events as core
from jan_serve.core.request import GenerationRequest
from jan_serve.core.transcript import random_uuid, started_s
from jan_serve.dialects.openai.chat import wire
from jan_serve.dialects.openai.chat.parse import chat_request, uses_functions
from jan_serve.dialects.openai.dialect import OpenAIParts
from jan_serve.dialects.openai.parse_common import wants_usage
from jan_serve.dialects.openai.render_common import (
    FINGERPRINT,
    ReplyFacts,
    Reports,
    chat_logprobs,
    timings_of,
    usage_of,
)
from jan_serve.dialects.shared.answers import FoldedAnswer, FoldedChoice, answer, answer_stream, stop_detail
from jan_serve.dialects.shared.default_error_body import error_body
from jan_serve.dialects.shared.resumable import ResumableStreams
from jan_serve.http.sse import STREAMED


class ChatRenderer(FoldedAnswer):
    """A stream has the role, thoughts, text and calls, the finish reason, then the usage on request."""

    def __init__(
        self, head: ReplyFacts, body: wire.CreateChatCompletionRequest, generation: GenerationRequest
    ) -> None:
        super().__init__(generation.n)
        self._head = head
        self._has_logprobs = generation.logprobs is not None
        self._functions = uses_functions(body)
        self._include_usage = wants_usage(body)
        self._reports = Reports(body, generation.n)

    def body(self) -> wire.CreateChatCompletionResponse:
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

    def _choice(self, index: int, choice: FoldedChoice) -> wire.ResponseChoice:
        return {
            "index": index,
            "message": self._message(choice),
            "logprobs": chat_logprobs(choice.tokens) if self._has_logprobs else None,
            "finish_reason": self._finish_reason(choice.reason),
            **stop_detail(choice.finished),
        }

    def _message(self, choice: FoldedChoice) -> wire.ResponseMessage:
        message: wire.ResponseMessage = {"role": "assistant", "content": choice.text}
        if choice.thoughts:
            message["reasoning_content"] = choice.thought
        if not choice.calls:
            return message
        message["content"] = choice.text or None
        calls: list[wire.ResponseToolCall] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in choice.calls
        ]
        if self._functions:
            message["function_call"] = calls[0]["function"]
        else:
            message["tool_calls"] = calls
        return message

    def _finish_reason(self, reason: core.FinishReason) -> str:
        if reason == "tool_calls" and self._functions:
            return "function_call"
        return "stop" if reason == "abort" else reason

    def chunks(self, event: core.GenerationEvent) -> Iterator[wire.ChatCompletionChunk]:
        return self._reports.added(event, self._chunks(event), self._opening)

    def _opening(self, prompt: int) -> wire.ChatCompletionChunk:
        return self._chunk(prompt, {"role": "assistant", "content": ""})

    def _chunks(self, event: core.GenerationEvent) -> Iterator[wire.ChatCompletionChunk]:
        match event:
            case core.Started():
                self._head.served_by(event.model)
                for index in range(len(self.choices)):
                    yield self._opening(index)
            case core.TextDelta() if event.text or (self._has_logprobs and event.tokens):
                yield self._chunk(event.index, {"content": event.text}, tokens=event.tokens)
            case core.ReasoningDelta() if event.text or (self._has_logprobs and event.tokens):
                yield self._chunk(event.index, {"reasoning_content": event.text}, tokens=event.tokens)
            case core.ToolCallDelta():
                yield self._chunk(event.index, self._call_delta(event))
            case core.Finished():
                yield self._chunk(event.index, {}, finished=event)
            case core.Completed() if self._include_usage:
                yield {
                    **self._shell([]),
                    "usage": usage_of(event.usage),
                    "timings": timings_of(event),
                }
            case _:
                pass

    def _call_delta(self, delta: core.ToolCallDelta) -> wire.Delta:
        function: wire.FunctionFragment = {"arguments": delta.arguments}
        if delta.name is not None:
            function = {"name": delta.name, "arguments": delta.arguments}
        if self._functions:
            return {"function_call": function}
        fragment: wire.ToolCallFragment = {"index": delta.call_index, "function": function}
        if delta.id is not None:
            fragment = {"index": delta.call_index, "id": delta.id, "type": "function", "function": function}
        return {"tool_calls": [fragment]}

    def _chunk(
        self,
        index: int,
        delta: wire.Delta,
        *,
        tokens: tuple[core.TokenInfo, ...] = (),
        finished: core.Finished | None = None,
    ) -> wire.ChatCompletionChunk:
        return self._shell(
            [
                {
                    "index": index,
                    "delta": delta,
                    "logprobs": chat_logprobs(tokens) if self._has_logprobs and tokens else None,
                    "finish_reason": None if finished is None else self._finish_reason(finished.reason),
                    **stop_detail(finished),
                }
            ]
        )

    def _shell(self, choices: list[wire.ChunkChoice]) -> wire.ChatCompletionChunk:
        shell: wire.ChatCompletionChunk = {
            "id": self._head.id,
            "model": self._head.model,
            "created": self._head.created,
            "object": "chat.completion.chunk",
            "system_fingerprint": FINGERPRINT,
            "choices": choices,
        }
        if self._include_usage:
            shell["usage"] = None
        return shell


def add_routes(router: APIRouter, parts: OpenAIParts) -> None:
    kept, streams = ResumableStreams(parts.resume_s), parts.services.streams

    @router.post(
        "/v1/chat/completions",
        summary="Chat",
        response_model=wire.CreateChatCompletionResponse,
        responses=STREAMED,
    )
    async def create_chat_completion(request: Request, body: wire.CreateChatCompletionRequest) -> Response:
        """Answer the last message of a conversation."""
        generation = chat_request(body)
        resumed = await kept.opened(request) if body.stream else None
        head = ReplyFacts(f"chatcmpl-{random_uuid()}", started_s(), body.model)
        events = parts.service.generate(generation)
        renderer = ChatRenderer(head, body, generation)
        if resumed is None:
            return await answer(request, events, renderer, error_body, streams, stream=body.stream)
        events, chunks = resumed.events(events), resumed.chunks(renderer.chunks)
        return await answer_stream(request, events, chunks, error_body, streams, framed=resumed.framed)
