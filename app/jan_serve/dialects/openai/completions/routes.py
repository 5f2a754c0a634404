"""POST /v1/completions: makes one GenerationRequest per prompt, and renders the answer, whole and as chunks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import partial

import msgspec
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from jan_serve.core.events import (
    Completed,
    Finished,
    GenerationEvent,
    PromptTokens,
    Started,
    TextDelta,
    Usage,
)
from jan_serve.core.request import GenerationRequest, InfillPrompt, Prompt, TextPrompt, TokenPrompt
from jan_serve.core.transcript import random_uuid, started_s
from jan_serve.dialects.dialect import Services
from jan_serve.dialects.openai.completions.wire import (
    CompletionChoice,
    CompletionLogprobs,
    CreateCompletionRequest,
    CreateCompletionResponse,
)
from jan_serve.dialects.openai.parse_common import choice_counts, request_of, stop_conditions, wants_usage
from jan_serve.dialects.openai.render_common import (
    FINGERPRINT,
    CompletionLogprobsBuilder,
    ReplyFacts,
    Reports,
    usage_of,
)
from jan_serve.dialects.openai.wire_common import ReportFields
from jan_serve.dialects.shared import limits
from jan_serve.dialects.shared.answers import answer
from jan_serve.dialects.shared.default_error_body import error_body
from jan_serve.dialects.shared.generation_fields import require
from jan_serve.errors import InvalidRequest
from jan_serve.generation.batch import generate_batch
from jan_serve.generation.leased_model import LeasedModel
from jan_serve.generation.service import GenerationService
from jan_serve.http.disconnect import while_connected
from jan_serve.http.sse import STREAMED


def completion_requests(body: CreateCompletionRequest) -> list[GenerationRequest]:
    """Requests in the order of the prompts. Raises InvalidRequest."""
    prompts = [_prompt(item, body.suffix) for item in body.prompt]
    n, best_of = choice_counts(body.n, body.best_of, len(prompts))
    if body.logprobs is not None:
        require("logprobs", body.logprobs, 0, limits.MAX_LOGPROBS)
    request = request_of(
        body,
        prompts[0],
        stop_conditions(body, body.max_tokens if body.echo else body.max_tokens or None),
        n=n,
        best_of=best_of,
        logprobs=body.logprobs,
        prompt_logprobs=body.logprobs if body.echo else None,
    )
    return [msgspec.structs.replace(request, prompt=prompt) for prompt in prompts]


def _prompt(item: str | tuple[int, ...], suffix: str | None) -> Prompt:
    if suffix:
        if isinstance(item, tuple):
            raise InvalidRequest("suffix: needs the prompt as text, not as token ids", param="suffix")
        return InfillPrompt(item, suffix, prefix_only=True)
    return TextPrompt(item) if isinstance(item, str) else TokenPrompt(item)


class CompletionForm(msgspec.Struct, frozen=True):
    """n: choices for each prompt. prompts: their texts, if echo or logprobs need them."""

    prompts: Sequence[str]
    n: int
    echo: bool = False
    suffix: str | None = None
    logprobs: bool = False
    include_usage: bool = False
    reports: ReportFields = ReportFields()


class CompletionRenderer:
    """A stream has text, then the finish reason, then the usage on request."""

    def __init__(self, head: ReplyFacts, form: CompletionForm) -> None:
        self._head = head
        self._form = form
        self._pieces: defaultdict[int, list[CompletionChoice]] = defaultdict(list)
        self._usage = Usage()
        self._append_suffix: set[int] = set()
        self._offsets: dict[int, CompletionLogprobsBuilder] = {}
        self._reports = Reports(form.reports, form.n)

    def add(self, event: GenerationEvent) -> None:
        match event:
            case Started() as started:
                self._head.served_by(started.model)
            case Completed() as completed:
                self._usage = completed.usage
            case _:
                pass
        for piece in self._new_pieces(event):
            self._pieces[piece["index"]].append(piece)

    def body(self) -> CreateCompletionResponse:
        reply = self._shell([self._joined(index) for index in sorted(self._pieces)])
        reply["usage"] = usage_of(self._usage)
        return reply

    def _joined(self, index: int) -> CompletionChoice:
        pieces = self._pieces[index]
        joined = _piece(index, "".join(piece["text"] for piece in pieces))
        joined["finish_reason"] = pieces[-1]["finish_reason"]
        if "stop_reason" in pieces[-1]:
            joined["stop_reason"] = pieces[-1]["stop_reason"]
        if self._form.logprobs:
            joined["logprobs"] = _concatenated([piece["logprobs"] for piece in pieces])
        return joined

    def chunks(self, event: GenerationEvent) -> Iterator[CreateCompletionResponse]:
        return self._reports.added(event, self._chunks(event), self._empty)

    def _empty(self, prompt: int) -> CreateCompletionResponse:
        return self._chunk([_piece(prompt * self._form.n, "")])

    def _chunks(self, event: GenerationEvent) -> Iterator[CreateCompletionResponse]:
        if isinstance(event, Started):
            self._head.served_by(event.model)
        for piece in self._new_pieces(event):
            yield self._chunk([piece])
        if isinstance(event, Completed) and self._form.include_usage:
            yield self._chunk([], event.usage)

    def _chunk(self, choices: list[CompletionChoice], usage: Usage | None = None) -> CreateCompletionResponse:
        chunk = self._shell(choices)
        if self._form.include_usage:
            chunk["usage"] = usage_of(usage) if usage is not None else None
        return chunk

    def _shell(self, choices: list[CompletionChoice]) -> CreateCompletionResponse:
        return {
            "id": self._head.id,
            "object": "text_completion",
            "created": self._head.created,
            "model": self._head.model,
            "system_fingerprint": FINGERPRINT,
            "choices": choices,
        }

    def _new_pieces(self, event: GenerationEvent) -> Iterator[CompletionChoice]:
        """Pieces of choices: index, text, logprobs, finish reason."""
        match event:
            case Started() as started:
                if self._form.suffix and not started.infilled:
                    self._append_suffix.add(started.prompt)
                if self._form.echo and not self._form.logprobs:
                    for index in self._indices(started.prompt):
                        yield _piece(index, self._form.prompts[started.prompt])
            case PromptTokens() as prompt if self._form.echo:
                text = self._form.prompts[prompt.prompt]
                for index in self._indices(prompt.prompt):
                    yield _piece(index, text, self._builder(index).add(prompt.tokens))
            case TextDelta() as delta if delta.text or (self._form.logprobs and delta.tokens):
                logprobs = self._builder(delta.index).add(delta.tokens) if self._form.logprobs else None
                yield _piece(delta.index, delta.text, logprobs)
            case Finished() as finished:
                if finished.index // self._form.n in self._append_suffix:
                    yield _piece(finished.index, self._form.suffix or "")
                last = _piece(finished.index, "", self._end(finished))
                last["finish_reason"] = "length" if finished.reason == "length" else "stop"
                if finished.repetition:
                    last["stop_reason"] = "repetition_detected"
                yield last
            case _:
                pass

    def _end(self, finished: Finished) -> CompletionLogprobs | None:
        """The token that ended the answer to a scored prompt: clients that score drop the last entry."""
        if finished.end_token is None or not (self._form.echo and self._form.logprobs):
            return None
        return self._builder(finished.index).add([finished.end_token])

    def _indices(self, prompt: int) -> range:
        return range(prompt * self._form.n, (prompt + 1) * self._form.n)

    def _builder(self, index: int) -> CompletionLogprobsBuilder:
        if index not in self._offsets:
            start = 0 if self._form.echo else len(self._form.prompts[index // self._form.n])
            self._offsets[index] = CompletionLogprobsBuilder(start)
        return self._offsets[index]


def _piece(index: int, text: str, logprobs: CompletionLogprobs | None = None) -> CompletionChoice:
    return {"text": text, "index": index, "logprobs": logprobs, "finish_reason": None}


def _concatenated(parts: Sequence[CompletionLogprobs | None]) -> CompletionLogprobs:
    whole: CompletionLogprobs = {"tokens": [], "text_offset": [], "token_logprobs": [], "top_logprobs": []}
    for part in parts:
        if part is not None:
            whole["tokens"] += part["tokens"]
            whole["text_offset"] += part["text_offset"]
            whole["token_logprobs"] += part["token_logprobs"]
            whole["top_logprobs"] += part["top_logprobs"]
    return whole


def add_completion_route(router: APIRouter, services: Services, service: GenerationService) -> None:

    @router.post(
        "/v1/completions", summary="Completion", response_model=CreateCompletionResponse, responses=STREAMED
    )
    async def create_completion(request: Request, body: CreateCompletionRequest) -> Response:
        """Continue a text, or several."""
        requests = completion_requests(body)
        head = ReplyFacts(f"cmpl-{random_uuid()}", started_s(), body.model)
        prompts: list[str] = []
        for item in body.prompt if body.echo or body.logprobs is not None else ():
            if isinstance(item, tuple):
                work = service.with_model(requests[0].model, partial(LeasedModel.detokenize, tokens=item))
                item = await while_connected(request, work)
            prompts.append(item)
        form = CompletionForm(
            prompts, requests[0].n, body.echo, body.suffix, body.logprobs is not None, wants_usage(body), body
        )
        events = generate_batch(service.generate, requests)
        renderer = CompletionRenderer(head, form)
        return await answer(request, events, renderer, error_body, services.streams, stream=body.stream)
