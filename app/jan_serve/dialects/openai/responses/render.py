"""Renders an answer of /v1/responses, as a stream and whole."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from http import HTTPStatus
from typing import Any

from jan_serve.core import events as core
from jan_serve.dialects.openai.render_common import ReplyFacts, Reports, timings_of
from jan_serve.dialects.openai.responses import items
from jan_serve.dialects.openai.responses.parse import ENCRYPTED_THOUGHTS, ParsedResponse
from jan_serve.dialects.openai.responses.wire import CreateResponseRequest, TextConfig
from jan_serve.dialects.openai.responses.wire_reply import (
    Event,
    ItemStatus,
    OutputItem,
    ResponseBody,
    ResponseUsage,
    Status,
)
from jan_serve.dialects.shared.answers import StopDetail, stop_detail
from jan_serve.http.errors import Problem


def _dumped(model: Any, *, exclude_none: bool = False) -> dict[str, Any]:
    return model.model_dump(by_alias=True, exclude_none=exclude_none)


def _shown_text(config: TextConfig) -> dict[str, Any]:
    """The format of the text, with the members that OpenAI's answers always have."""
    shown: dict[str, Any] = {"format": {"type": "text"}, **_dumped(config, exclude_none=True)}
    if shown["format"]["type"] == "json_schema":
        shown["format"] = {"description": None, "strict": False, **shown["format"]}
    return shown


class ResponseEvents:
    """The stream: the request's parameters, the events of each item, then the whole answer."""

    def __init__(
        self,
        head: ReplyFacts,
        body: CreateResponseRequest,
        parsed: ParsedResponse,
        keep: Callable[[ResponseBody], None] = lambda _: None,
    ) -> None:
        """keep: called with the finished answer before it is sent."""
        self._head = head
        self._body = body
        self._parsed = parsed
        self._keep = keep
        self._sequence = 0
        self._done: list[OutputItem] = []
        self._open: items.OpenItem | None = None
        self._reason: core.FinishReason = "stop"
        self._detail: StopDetail = {}
        self._warnings: list[str] = []
        self._last: Event = {}
        self._reports = Reports(body)

    def add(self, event: core.GenerationEvent) -> None:
        for rendered in self.chunks(event):
            self._last = rendered

    def body(self) -> ResponseBody:
        """The `response` of the last event that `add` rendered."""
        return self._last["response"]

    def chunks(self, event: core.GenerationEvent) -> Iterator[Event]:
        for rendered in self._reports.added(event, self._events(event), self._in_progress):
            yield self._numbered(rendered)

    def queued(self) -> list[Event]:
        """The first events of an answer in the background. Others follow once it is accepted."""
        response = self._response("queued", [])
        kinds = "response.created", "response.queued"
        return [self._numbered({"type": kind, "response": response}) for kind in kinds]

    def cancelled(self) -> Event:
        """The last event of an answer that its owner ended. The API has none of its own for it."""
        response = self._response("cancelled", self._output("incomplete"))
        return self._numbered({"type": "response.incomplete", "response": response})

    def failed(self, problem: Problem) -> Event:
        """The last event of an answer that failed."""
        response = self._response("failed", self._output("incomplete"))
        response["error"] = {"code": _error_code(problem), "message": problem.message}
        return self._numbered({"type": "response.failed", "response": response})

    def _in_progress(self, _prompt: int = 0) -> Event:
        return {"type": "response.in_progress", "response": self._response("in_progress", [])}

    def _events(self, event: core.GenerationEvent) -> Iterator[Event]:
        match event:
            case core.Started() as started:
                self._head.served_by(started.model)
                self._warnings = [*started.warnings]
                if not self._sequence:
                    yield {"type": "response.created", "response": self._response("in_progress", [])}
                yield self._in_progress()
            case core.TextDelta():
                if event.text and not isinstance(self._open, items.MessageWriter):
                    wants_logprobs = self._parsed.generation.logprobs is not None
                    yield from self._opened(items.MessageWriter(self._place, logprobs=wants_logprobs))
                if isinstance(self._open, items.MessageWriter):
                    yield from self._open.more(event.text, event.tokens)
            case core.ReasoningDelta() if event.text:
                if not isinstance(self._open, items.ThoughtWriter):
                    as_summary = self._body.reasoning.wants_summary
                    packed = ENCRYPTED_THOUGHTS in self._body.include
                    yield from self._opened(
                        items.ThoughtWriter(self._place, as_summary=as_summary, packed=packed)
                    )
                assert self._open is not None
                yield from self._open.more(event.text)
            case core.ToolCallDelta():
                if event.id is not None:
                    callee = self._parsed.tools.callee(event.name or "")
                    yield from self._opened(items.CallWriter(self._place, callee, event.id))
                assert self._open is not None
                yield from self._open.more(event.arguments)
            case core.Finished() as finished:
                self._reason = finished.reason
                self._detail = stop_detail(finished)
                yield from self._closed("completed" if self._is_whole else "incomplete")
            case core.Completed() as completed:
                yield self._end(completed)
            case _:
                pass

    def _end(self, completed: core.Completed) -> Event:
        status: Status = "completed" if self._is_whole else "incomplete"
        response = self._response(status, self._done)
        response["usage"] = response_usage(completed.usage)
        response["timings"] = timings_of(completed)
        if self._is_whole:
            response["completed_at"] = int(time.time())
        else:
            reason = "max_output_tokens" if self._reason == "length" else None
            response["incomplete_details"] = {"reason": reason, **self._detail}
        self._keep(response)
        return {"type": f"response.{status}", "response": response}

    @property
    def _is_whole(self) -> bool:
        return self._reason in ("stop", "tool_calls")

    @property
    def _place(self) -> items.Place:
        """The place of the next item."""
        return items.Place(self._head.id, len(self._done) + (self._open is not None))

    def _opened(self, item: items.OpenItem) -> Iterator[Event]:
        yield from self._closed("completed")
        self._open = item
        yield from item.opening()

    def _closed(self, status: ItemStatus) -> Iterator[Event]:
        if self._open is not None:
            yield from self._open.closing(status)
            self._done.append(self._open.item(status))
            self._open = None

    def _output(self, status: ItemStatus) -> list[OutputItem]:
        return [*self._done, *([self._open.item(status)] if self._open is not None else ())]

    def _response(self, status: Status, output: list[OutputItem]) -> ResponseBody:
        """The answer so far, with the request's parameters."""
        body, choice = self._body, self._body.tool_choice
        response: ResponseBody = {
            "id": self._head.id,
            "object": "response",
            "created_at": self._head.created,
            "completed_at": None,
            "status": status,
            "error": None,
            "incomplete_details": None,
            "instructions": body.instructions,
            "model": self._head.model,
            "output": output,
            "usage": None,
            "previous_response_id": body.previous_response_id,
            "store": body.store,
            "background": body.background,
            "max_output_tokens": body.max_output_tokens,
            "max_tool_calls": body.max_tool_calls,
            "parallel_tool_calls": body.parallel_tool_calls,
            "tool_choice": choice if isinstance(choice, str) else _dumped(choice),
            "tools": [_dumped(tool) for tool in self._parsed.tools.shown],
            "text": _shown_text(body.text),
            "reasoning": {"effort": body.reasoning.effort, "summary": body.reasoning.summary},
            "temperature": body.temperature,
            "top_p": body.top_p,
            "presence_penalty": body.presence_penalty or 0.0,
            "frequency_penalty": body.frequency_penalty or 0.0,
            "top_logprobs": body.top_logprobs or 0,
            "truncation": body.truncation,
            "metadata": body.metadata,
            "service_tier": "default",
            "prompt_cache_key": body.prompt_cache_key,
            "safety_identifier": body.safety_identifier,
            "user": body.user,
        }
        if self._warnings:
            response["warnings"] = self._warnings
        return response

    def _numbered(self, event: Event) -> Event:
        numbered = {"type": event["type"], "sequence_number": self._sequence, **event}
        self._sequence += 1
        return numbered


def response_usage(usage: core.Usage) -> ResponseUsage:
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {
            "cached_tokens": usage.cached_tokens,
            "cache_write_tokens": max(0, usage.prompt_tokens - usage.cached_tokens),
        },
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.total_tokens,
    }


def _error_code(problem: Problem) -> str:
    """The API's own codes where it defines one."""
    if problem.status == HTTPStatus.TOO_MANY_REQUESTS:
        return "rate_limit_exceeded"
    return "server_error" if problem.status >= HTTPStatus.INTERNAL_SERVER_ERROR else problem.code
