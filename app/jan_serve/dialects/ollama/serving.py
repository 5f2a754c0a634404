"""One application's state for Ollama's routes: runs jobs and renders their answers, loads and unloads models."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import TypedDict

from jan_serve.chat.call_arguments import object_arguments
from jan_serve.chat.detect import knows_thoughts
from jan_serve.core.closing import closing
from jan_serve.core.events import (
    Completed,
    Finished,
    FinishReason,
    GenerationEvent,
    ReasoningDelta,
    TextDelta,
    TokenInfo,
    ToolCallDelta,
)
from jan_serve.core.models import ModelFacts
from jan_serve.core.request import ChatPrompt, GenerationRequest, InfillPrompt
from jan_serve.dialects.dialect import Services
from jan_serve.dialects.ollama.common import Job, OllamaCandidate, OllamaLogprob, thinking
from jan_serve.dialects.ollama.errors import Unsupported, error_body
from jan_serve.dialects.shared.answers import FoldedAnswer, FoldedCall, answer, stop_detail
from jan_serve.errors import UnsupportedOperation
from jan_serve.generation.service import GenerationService
from jan_serve.http.disconnect import while_connected
from jan_serve.http.replies import json_bytes


class OllamaFunction(TypedDict):
    """index: number of the call in the answer."""

    index: int
    name: str
    arguments: dict[str, Any]


class OllamaCall(TypedDict):
    id: str
    function: OllamaFunction


Shape = Callable[[str, str, Sequence[OllamaCall]], dict[str, Any]]
"""The members for this text, thought and calls: a `message` in chats, `response` and `thinking` in texts."""


def line(value: object) -> bytes:
    """One line of a stream."""
    return json_bytes(value) + b"\n"


def time_text(moment: datetime) -> str:
    """RFC 3339 in UTC, with microseconds: Python's clients read no more."""
    return moment.replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


class ReplyFacts:
    """Members of every line, and the times of one request. name: as the request has it."""

    def __init__(self, name: str, shape: Shape, now: Callable[[], datetime]) -> None:
        self.shape = shape
        self._name = name
        self._now = now
        self._started_ns = time.perf_counter_ns()
        self._load_ns = 0

    def loaded(self) -> None:
        """The model is there from now on."""
        self._load_ns = time.perf_counter_ns() - self._started_ns

    def body(self, text: str, thought: str, calls: Sequence[OllamaCall], *, done: bool) -> dict[str, Any]:
        head = {"model": self._name, "created_at": time_text(self._now())}
        return {**head, **self.shape(text, thought, calls), "done": done}

    def ending(self, reason: FinishReason, completed: Completed) -> dict[str, Any]:
        """The members of the last line."""
        timings, usage = completed.timings, completed.usage
        return {
            "done_reason": "length" if reason == "length" else "stop",
            "total_duration": max(1, time.perf_counter_ns() - self._started_ns),
            "load_duration": max(1, self._load_ns),
            "prompt_eval_count": usage.prompt_tokens,
            "prompt_eval_duration": _ns(timings.prefill_s),
            "eval_count": usage.completion_tokens,
            "eval_duration": _ns(timings.decode_s),
        }


class AnswerRenderer(FoldedAnswer):
    """A stream has a line for each piece of text or thought and for each whole call, then the counters."""

    def __init__(self, head: ReplyFacts) -> None:
        super().__init__()
        self._head = head
        self._sent = 0

    def body(self) -> dict[str, Any]:
        choice = self.choices[0]
        logprobs = token_logprobs(choice.tokens)
        return {
            **self._head.body(choice.text, choice.thought, _calls(choice.calls, 0), done=True),
            **self._head.ending(choice.reason, self.completed),
            **stop_detail(choice.finished),
            **({"logprobs": logprobs} if logprobs else {}),
        }

    def chunks(self, event: GenerationEvent) -> Iterator[dict[str, Any]]:
        match event:
            case TextDelta() as delta:
                yield from self._ended_calls()
                yield from self._piece(delta.text, "", delta.tokens)
            case ReasoningDelta() as delta:
                yield from self._ended_calls()
                yield from self._piece("", delta.text, delta.tokens)
            case ToolCallDelta() as delta:
                if delta.id is not None:
                    yield from self._ended_calls()
                self.choices[0].add(delta)
            case Finished() as finished:
                yield from self._ended_calls()
                self.choices[0].add(finished)
            case Completed() as completed:
                yield {
                    **self._head.body("", "", (), done=True),
                    **self._head.ending(self.choices[0].reason, completed),
                    **stop_detail(self.choices[0].finished),
                }
            case _:
                pass

    def _piece(self, text: str, thought: str, tokens: Sequence[TokenInfo]) -> Iterator[dict[str, Any]]:
        logprobs = token_logprobs(tokens)
        if text or thought or logprobs:
            body = self._head.body(text, thought, (), done=False)
            yield {**body, "logprobs": logprobs} if logprobs else body

    def _ended_calls(self) -> Iterator[dict[str, Any]]:
        ended = self.choices[0].calls[self._sent :]
        if ended:
            yield self._head.body("", "", _calls(ended, self._sent), done=False)
        self._sent += len(ended)


def token_logprobs(tokens: Iterable[TokenInfo]) -> list[OllamaLogprob]:
    """Entries of the tokens that have a log-probability."""
    entries: list[OllamaLogprob] = []
    for token in tokens:
        if token.logprob is None:
            continue
        entry: OllamaLogprob = {**_candidate(token.piece, token.logprob)}
        if token.top:
            entry["top_logprobs"] = [_candidate(each.piece, each.logprob) for each in token.top]
        entries.append(entry)
    return entries


def _candidate(piece: bytes, logprob: float) -> OllamaCandidate:
    return {"token": piece.decode("utf-8", "replace"), "logprob": logprob, "bytes": list(piece)}


def _calls(folded: Sequence[FoldedCall], first: int) -> list[OllamaCall]:
    return [
        {
            "id": call.id,
            "function": {"index": index, "name": call.name, "arguments": object_arguments(call.arguments)},
        }
        for index, call in enumerate(folded, first)
    ]


def _ns(seconds: float) -> int:
    """Nanoseconds, at least one: clients divide by it."""
    return max(1, round(seconds * 1_000_000_000))


class Serving:
    """Shared by all requests. An unknown name of a model is always an error: clients then pull it."""

    def __init__(self, services: Services, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self.generation = GenerationService(services.models, services.preparer, services.running)
        self.models = services.models
        self.preparer = services.preparer
        self.now = now
        # Clients parse every line as JSON, so nothing is sent while a stream is silent.
        kind = "application/x-ndjson"
        self.streams = msgspec.structs.replace(services.streams, ping_s=0.0, media_type=kind)

    async def answer(self, request: Request, job: Job, shape: Shape, *, stream: bool) -> Response:
        """Raises as GenerationService.generate, and Unsupported."""
        head = ReplyFacts(job.request.model or "", shape, self.now)
        events, renderer = self._events(job, head), AnswerRenderer(head)
        return await answer(
            request, events, renderer, error_body, self.streams, stream=stream, done=b"", framed=line
        )

    async def _events(self, job: Job, head: ReplyFacts) -> AsyncGenerator[GenerationEvent]:
        asked = job.request
        async with self.generation.open(asked.model, asked.ttl_s) as model:
            head.loaded()
            fitted = _fitted(job, model.facts, model.template(asked.model))
            warnings = (*job.warnings, *_context_warning(job.num_ctx, model.facts.n_ctx))
            fitted = msgspec.structs.replace(fitted, warnings=warnings)
            try:
                async with closing(model.generate(fitted)) as events:
                    async for event in events:
                        yield event
            except UnsupportedOperation:
                if isinstance(fitted.prompt, InfillPrompt):
                    raise Unsupported(job.name, "insert") from None
                raise

    async def load(self, request: Request, name: str, ttl_s: float | None) -> int:
        """Load a model; returns the nanoseconds that it took. Raises as ModelLeases.lease."""
        started = time.perf_counter_ns()

        async def load() -> None:
            async with self.generation.open(name, ttl_s):
                pass

        await while_connected(request, load())
        return time.perf_counter_ns() - started

    async def unload(self, request: Request, name: str) -> None:
        """Nothing happens if it is not loaded. Raises ModelNotFound."""
        await while_connected(request, self.models.unload(name))


def _fitted(job: Job, facts: ModelFacts, template: str | None) -> GenerationRequest:
    """The request for this model. Raises Unsupported."""
    if facts.is_embedding_model:
        raise Unsupported(job.name, job.task)
    prompt = job.request.prompt
    if not isinstance(prompt, ChatPrompt):
        return job.request
    if prompt.tools and template is None:
        raise Unsupported(job.name, "tools")
    think = job.think
    if not knows_thoughts(template):
        if think:
            raise Unsupported(job.name, "thinking")
        return job.request
    changes: dict[str, Any] = thinking(prompt, True if think is None else think)
    return msgspec.structs.replace(job.request, prompt=msgspec.structs.replace(prompt, **changes))


def _context_warning(wanted: int | None, n_ctx: int) -> tuple[str, ...]:
    if wanted is None or wanted <= n_ctx:
        return ()
    return (f"num_ctx: {wanted} is above the {n_ctx} tokens of the loaded model, which no request reloads",)
