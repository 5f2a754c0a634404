"""POST /v1/completions: makes one GenerationRequest per prompt, and renders the answer, whole and as chunks."""

from __future__ import annotations

import codecs
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Annotated, Any, Literal, NotRequired, cast

import msgspec
from fastapi import APIRouter
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import TypedDict

from jan_serve.core import events as core
from jan_serve.core.request import GenerationRequest, InfillPrompt, Prompt, TextPrompt, TokenPrompt
from jan_serve.core.transcript import random_uuid, started_s
from jan_serve.dialects.openai.chat.wire import PromptProgress, Timings, Usage
from jan_serve.dialects.openai.dialect import OpenAIParts
from jan_serve.dialects.openai.parse_common import choice_counts, request_of, stop_conditions, wants_usage
from jan_serve.dialects.openai.render_common import FINGERPRINT, ReplyFacts, Reports, usage_of
from jan_serve.dialects.openai.wire_common import ChoiceFields, Count
from jan_serve.dialects.shared import limits
from jan_serve.dialects.shared.answers import StopDetail, answer, stop_detail
from jan_serve.dialects.shared.default_error_body import error_body
from jan_serve.dialects.shared.generation_fields import require
from jan_serve.dialects.shared.wire_types import Inputs, Int, TextsOrTokens, wrong
from jan_serve.generation.batch import generate_batch
from jan_serve.generation.service import LeasedModel
from jan_serve.http.disconnect import while_connected
from jan_serve.http.sse import STREAMED


class CreateCompletionRequest(ChoiceFields):
    """Texts or token ids to continue."""

    prompt: Annotated[
        Inputs,
        TextsOrTokens("prompt", limits.MAX_CHOICES, limits.MAX_PROMPT_TOKENS),
        Field(description="A text, token ids, or a list of these.", validate_default=True),
    ] = cast(Any, "")
    suffix: Annotated[str | None, Field(description="Text that follows what is generated.")] = None
    max_tokens: Count | None = Field(
        16,
        description="Maximum tokens to generate. Null and 0 generate until the context is full; with `echo`, 0 only"
        " scores the prompt.",
    )
    echo: Annotated[bool, Field(description="Put the prompt before the answer.")] = False
    logprobs: Count | None = Field(
        None, description="Return log-probabilities, of this many likely tokens besides the chosen one."
    )
    best_of: Annotated[
        Int | None, Field(description="Answers to generate; the n most likely ones are returned.")
    ] = 1


class CompletionLogprobs(TypedDict):
    """Parallel lists, one entry per token. text_offset counts characters."""

    tokens: list[str]
    text_offset: list[int]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]


class CompletionChoice(StopDetail):
    """One answer; in a stream, its next piece."""

    text: str
    index: int
    logprobs: CompletionLogprobs | None
    finish_reason: Literal["stop", "length"] | None


class CreateCompletionResponse(TypedDict):
    """All answers, or one event of a stream. usage: in streams only on request."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    system_fingerprint: str
    choices: list[CompletionChoice]
    usage: NotRequired[Usage | None]
    timings: NotRequired[Timings]
    prompt_progress: NotRequired[PromptProgress]


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
            raise wrong("suffix", "needs the prompt as text, not as token ids")
        return InfillPrompt(item, suffix, prefix_only=True)
    return TextPrompt(item) if isinstance(item, str) else TokenPrompt(item)


class LogprobsBuilder:
    """Builds the parallel lists of one choice. Offsets count characters of the whole text from `offset`."""

    def __init__(self, offset: int) -> None:
        self._offset = offset
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def add(self, tokens: Iterable[core.TokenInfo]) -> CompletionLogprobs:
        """The lists for these tokens alone. A token inside a character has the offset of that character."""
        lists = _no_logprobs()
        for token in tokens:
            lists["tokens"].append(token_text(token.piece))
            lists["text_offset"].append(self._offset)
            lists["token_logprobs"].append(token.logprob)
            lists["top_logprobs"].append(_top(token))
            if not token.special:
                self._offset += len(self._decoder.decode(token.piece))
        return lists


def _no_logprobs() -> CompletionLogprobs:
    return {"tokens": [], "text_offset": [], "token_logprobs": [], "top_logprobs": []}


def _top(token: core.TokenInfo) -> dict[str, float] | None:
    """Candidates by text, including the chosen token; None for the first prompt token, which has no probability."""
    if token.logprob is None:
        return None
    top = {token_text(entry.piece): entry.logprob for entry in token.top}
    top[token_text(token.piece)] = token.logprob
    return top


def token_text(piece: bytes) -> str:
    """The token's text, or `bytes:\\x..` for a part of a character, so that different tokens have different keys."""
    try:
        return piece.decode("utf-8")
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in piece)


class CompletionRenderer:
    """A stream has text, then the finish reason, then the usage on request."""

    def __init__(
        self, head: ReplyFacts, body: CreateCompletionRequest, n: int, prompts: Sequence[str]
    ) -> None:
        """n: choices for each prompt. prompts: their texts, if echo or logprobs need them."""
        self._head = head
        self._body = body
        self._n = n
        self._prompts = prompts
        self._has_logprobs = body.logprobs is not None
        self._include_usage = wants_usage(body)
        self._pieces: defaultdict[int, list[CompletionChoice]] = defaultdict(list)
        self._usage = core.Usage()
        self._append_suffix: set[int] = set()
        self._builders: dict[int, LogprobsBuilder] = {}
        self._reports = Reports(body, n)

    def add(self, event: core.GenerationEvent) -> None:
        if isinstance(event, core.Completed):
            self._usage = event.usage
        for piece in self._new_pieces(event):
            self._pieces[piece["index"]].append(piece)

    def body(self) -> CreateCompletionResponse:
        reply = self._shell([self._joined(index) for index in sorted(self._pieces)])
        reply["usage"] = usage_of(self._usage)
        return reply

    def _joined(self, index: int) -> CompletionChoice:
        pieces = self._pieces[index]
        joined: CompletionChoice = {**pieces[-1], "text": "".join(piece["text"] for piece in pieces)}
        if self._has_logprobs:
            joined["logprobs"] = whole = _no_logprobs()
            for part in filter(None, (piece["logprobs"] for piece in pieces)):
                whole["tokens"] += part["tokens"]
                whole["text_offset"] += part["text_offset"]
                whole["token_logprobs"] += part["token_logprobs"]
                whole["top_logprobs"] += part["top_logprobs"]
        return joined

    def chunks(self, event: core.GenerationEvent) -> Iterator[CreateCompletionResponse]:
        return self._reports.added(event, self._chunks(event), self._empty)

    def _empty(self, prompt: int) -> CreateCompletionResponse:
        return self._chunk([_piece(prompt * self._n, "")])

    def _chunks(self, event: core.GenerationEvent) -> Iterator[CreateCompletionResponse]:
        for piece in self._new_pieces(event):
            yield self._chunk([piece])
        if isinstance(event, core.Completed) and self._include_usage:
            yield {**self._shell([]), "usage": usage_of(event.usage)}

    def _chunk(self, choices: list[CompletionChoice]) -> CreateCompletionResponse:
        chunk = self._shell(choices)
        if self._include_usage:
            chunk["usage"] = None
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

    def _new_pieces(self, event: core.GenerationEvent) -> Iterator[CompletionChoice]:
        """Pieces of choices: index, text, logprobs, finish reason."""
        match event:
            case core.Started():
                self._head.served_by(event.model)
                if self._body.suffix and not event.infilled:
                    self._append_suffix.add(event.prompt)
                if self._body.echo and not self._has_logprobs:
                    for index in self._indices(event.prompt):
                        yield _piece(index, self._prompts[event.prompt])
            case core.PromptTokens() if self._body.echo:
                for index in self._indices(event.prompt):
                    yield _piece(index, self._prompts[event.prompt], self._logprobs(index, event.tokens))
            case core.TextDelta() if event.text or (self._has_logprobs and event.tokens):
                logprobs = self._logprobs(event.index, event.tokens) if self._has_logprobs else None
                yield _piece(event.index, event.text, logprobs)
            case core.Finished():
                if event.index // self._n in self._append_suffix:
                    yield _piece(event.index, self._body.suffix or "")
                last = _piece(event.index, "", self._end(event))
                last["finish_reason"] = "length" if event.reason == "length" else "stop"
                yield {**last, **stop_detail(event)}
            case _:
                pass

    def _end(self, finished: core.Finished) -> CompletionLogprobs | None:
        """The token that ended the answer to a scored prompt: clients that score drop the last entry."""
        if finished.end_token is None or not (self._body.echo and self._has_logprobs):
            return None
        return self._logprobs(finished.index, [finished.end_token])

    def _indices(self, prompt: int) -> range:
        return range(prompt * self._n, (prompt + 1) * self._n)

    def _logprobs(self, index: int, tokens: Iterable[core.TokenInfo]) -> CompletionLogprobs:
        if index not in self._builders:
            start = 0 if self._body.echo else len(self._prompts[index // self._n])
            self._builders[index] = LogprobsBuilder(start)
        return self._builders[index].add(tokens)


def _piece(index: int, text: str, logprobs: CompletionLogprobs | None = None) -> CompletionChoice:
    return {"text": text, "index": index, "logprobs": logprobs, "finish_reason": None}


def add_routes(router: APIRouter, parts: OpenAIParts) -> None:
    service = parts.service

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
        renderer = CompletionRenderer(head, body, requests[0].n, prompts)
        events = generate_batch(service.generate, requests)
        return await answer(request, events, renderer, error_body, parts.services.streams, stream=body.stream)
