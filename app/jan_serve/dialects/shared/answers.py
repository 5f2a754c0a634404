"""Sends an answer, whole or as a stream, from the same events, and folds them for whole replies of every dialect.

The dialect's renderer decides its form. What needs a model and generates nothing has `on_model`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from typing import Any, Literal, NotRequired, Protocol, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import TypedDict, Unpack

from jan_serve.core import events as core
from jan_serve.core.closing import closing
from jan_serve.generation.service import GenerationService, LeasedModel
from jan_serve.http.disconnect import while_connected
from jan_serve.http.errors import Problem
from jan_serve.http.replies import json_reply
from jan_serve.http.request_record import record_of
from jan_serve.http.sse import EventStream, StreamSettings, frames_of

Events = AsyncGenerator[core.GenerationEvent]


class Measured(Protocol):
    """What was made of prompts. model: its canonical name."""

    @property
    def model(self) -> str: ...
    @property
    def prompt_tokens(self) -> int: ...


M = TypeVar("M", bound=Measured)


async def on_model(
    request: Request,
    service: GenerationService,
    model: str | None,
    work: Callable[[LeasedModel], Awaitable[M]],
    ttl_s: float | None = None,
) -> M:
    """See GenerationService.with_model. Counts the tokens, and raises ClientGone."""
    result = await while_connected(request, service.with_model(model or None, work, ttl_s))
    count_tokens(request, result)
    return result


def count_tokens(request: Request, result: Measured) -> None:
    """Name the model and the tokens in the log line and the metrics."""
    record = record_of(request.scope)
    record.model, record.prompt_tokens = result.model, result.prompt_tokens


class WholeRenderer(Protocol):
    """Folds the events of an answer into one body."""

    def add(self, event: core.GenerationEvent) -> None: ...

    def body(self) -> object:
        """The JSON value, after all events were added."""
        ...


class Renderer(WholeRenderer, Protocol):
    """Renders an answer either way."""

    def chunks(self, event: core.GenerationEvent) -> Iterable[object]:
        """Turns each event into JSON values, in order; often none or one. In place of `add`."""
        ...


class Framing(TypedDict, total=False):
    """Options of `frames_of`.

    done: ends a stream that succeeded; with done_after_error, also one that failed. framed: encodes a value.
    """

    done: bytes
    done_after_error: bool
    framed: Callable[[Any], bytes]


Chunks = Callable[[core.GenerationEvent], Iterable[object]]
"""What renders an event of a stream; see `Renderer.chunks`."""


async def answer(
    request: Request,
    events: Events,
    renderer: Renderer,
    render_error: Callable[[Problem], object],
    streams: StreamSettings,
    *,
    stream: bool | None,
    **framing: Unpack[Framing],
) -> Response:
    """See `answer_stream` where the request wants a stream, else as `answer_whole`."""
    if not stream:
        return await answer_whole(request, events, renderer)
    return await answer_stream(request, events, renderer.chunks, render_error, streams, **framing)


async def answer_whole(request: Request, events: Events, renderer: WholeRenderer) -> Response:
    """Wait for the last event, then send the body. Raises what the events raise, and ClientGone."""
    record = record_of(request.scope)

    async def collect() -> None:
        async with closing(events):
            async for event in events:
                record.observe(event)
                renderer.add(event)

    await while_connected(request, collect())
    return json_reply(renderer.body())


async def answer_stream(
    request: Request,
    events: Events,
    chunks: Chunks,
    render_error: Callable[[Problem], object],
    streams: StreamSettings,
    **framing: Unpack[Framing],
) -> Response:
    """Wait for the first event: an error before it still sets the status. Raises as `answer_whole`."""
    record = record_of(request.scope)
    record.stream = True
    first = await while_connected(request, anext(events))
    if isinstance(first, core.Started):
        record.warnings = first.warnings  # these are headers, which go out before the first frame

    def render(event: core.GenerationEvent) -> Iterable[object]:
        record.observe(event)
        return chunks(event)

    return EventStream(
        frames_of(events, render, render_error, record=record, first=[first], **framing), streams
    )


class StopDetail(TypedDict):
    """Beside a finish reason `length`: vLLM's name and value for a text that repeated itself."""

    stop_reason: NotRequired[Literal["repetition_detected"]]


def stop_detail(finished: core.Finished | None) -> StopDetail:
    return {"stop_reason": "repetition_detected"} if finished is not None and finished.repetition else {}


ChoiceEvent = core.TextDelta | core.ReasoningDelta | core.ToolCallDelta | core.Finished
"""Events that belong to one choice."""


class FoldedCall(msgspec.Struct):
    """A tool call so far. parts: of the arguments, as the model generated them."""

    id: str
    name: str
    parts: list[str] = msgspec.field(default_factory=list[str])

    @property
    def arguments(self) -> str:
        return "".join(self.parts)


class FoldedChoice(msgspec.Struct):
    """One choice so far. tokens: of texts and thoughts, if the request wants tokens."""

    texts: list[str] = msgspec.field(default_factory=list[str])
    thoughts: list[str] = msgspec.field(default_factory=list[str])
    calls: list[FoldedCall] = msgspec.field(default_factory=list[FoldedCall])
    tokens: list[core.TokenInfo] = msgspec.field(default_factory=list[core.TokenInfo])
    finished: core.Finished | None = None

    @property
    def text(self) -> str:
        """The answer without its thoughts."""
        return "".join(self.texts)

    @property
    def thought(self) -> str:
        return "".join(self.thoughts)

    @property
    def ids(self) -> list[int]:
        return [token.id for token in self.tokens]

    @property
    def reason(self) -> core.FinishReason:
        """Only of a finished choice."""
        assert self.finished is not None
        return self.finished.reason

    def add(self, event: ChoiceEvent) -> None:
        match event:
            case core.TextDelta():
                self.texts.append(event.text)
                self.tokens.extend(event.tokens)
            case core.ReasoningDelta():
                self.thoughts.append(event.text)
                self.tokens.extend(event.tokens)
            case core.ToolCallDelta():
                self._add_call(event)
            case core.Finished():
                self.finished = event

    def _add_call(self, delta: core.ToolCallDelta) -> None:
        if delta.id is not None:
            self.calls.append(FoldedCall(id=delta.id, name=delta.name or ""))
        self.calls[delta.call_index].parts.append(delta.arguments)


class FoldedAnswer:
    """An answer so far: how it began, its choices by index, and how it ended."""

    def __init__(self, choices: int = 1) -> None:
        self.started = core.Started(model="", prompt_tokens=0)
        self.choices = [FoldedChoice() for _ in range(choices)]
        self.completed = core.Completed(usage=core.Usage())

    def add(self, event: core.GenerationEvent) -> None:
        match event:
            case core.Started():
                self.started = event
            case core.TextDelta() | core.ReasoningDelta() | core.ToolCallDelta() | core.Finished():
                self.choices[event.index].add(event)
            case core.Completed():
                self.completed = event
            case _:
                pass
