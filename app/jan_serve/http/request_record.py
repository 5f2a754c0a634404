"""Sizes and times of one HTTP request, for its log line and the metrics. Never its text."""

from __future__ import annotations

import time

import msgspec
from starlette.types import Scope

from jan_serve.core.events import (
    Completed,
    Finished,
    GenerationEvent,
    ReasoningDelta,
    Started,
    TextDelta,
    ToolCallDelta,
    Usage,
)

_KEY = "jan_serve.record"


class RequestRecord(msgspec.Struct):
    """Times are in seconds; `first_token_s` counts from the arrival of the request.

    token_gaps_s: between consecutive pieces of an answer, over all choices. finish_reasons: one per choice.
    """

    request_id: str
    started: float = msgspec.field(default_factory=time.perf_counter)
    model: str | None = None
    stream: bool = False
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    first_token_s: float | None = None
    queue_s: float | None = None
    prefill_s: float | None = None
    decode_s: float | None = None
    token_gaps_s: list[float] = msgspec.field(default_factory=list[float])
    finish_reasons: list[str] = msgspec.field(default_factory=list[str])
    error: str | None = None
    warnings: tuple[str, ...] = ()
    cancelled: bool = False
    _last_token_s: float = 0.0

    def elapsed_s(self) -> float:
        return time.perf_counter() - self.started

    def observe(self, event: GenerationEvent) -> None:
        """Counts are current after each event, because an answer may be cut short."""
        match event:
            case Started():
                self.model = event.model
                self.prompt_tokens += event.prompt_tokens
                self.warnings = event.warnings
            case TextDelta() | ReasoningDelta() | ToolCallDelta():
                self._observe_piece(self.elapsed_s())
            case Finished():
                self.completion_tokens += event.completion_tokens
                self.finish_reasons.append(event.reason)
            case Completed():
                self.count(event.usage)
                self.queue_s = event.timings.queue_s
                self.prefill_s = event.timings.prefill_s
                self.decode_s = event.timings.decode_s
            case _:
                pass

    def _observe_piece(self, at_s: float) -> None:
        if self.first_token_s is None:
            self.first_token_s = at_s
        else:
            self.token_gaps_s.append(at_s - self._last_token_s)
        self._last_token_s = at_s

    def count(self, usage: Usage) -> None:
        """Replace the counts by the final ones."""
        self.prompt_tokens = usage.prompt_tokens
        self.completion_tokens = usage.completion_tokens
        self.cached_tokens = usage.cached_tokens


def attach_record(scope: Scope, record: RequestRecord) -> None:
    scope[_KEY] = record


def record_of(scope: Scope) -> RequestRecord:
    record = scope[_KEY]
    assert isinstance(record, RequestRecord)
    return record
