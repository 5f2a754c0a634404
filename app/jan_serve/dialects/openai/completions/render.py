"""Renders an answer of /v1/completions, whole and as chunks. Pure.

Both take the same pieces from `_Choices`: the echoed prompt, the text, and the suffix if the model could not read it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import msgspec

from jan_serve.core.events import (
    Completed,
    Finished,
    GenerationEvent,
    PromptTokens,
    Started,
    TextDelta,
    Usage,
)
from jan_serve.dialects.openai.completions.wire import (
    CompletionChoice,
    CompletionLogprobs,
    CreateCompletionResponse,
)
from jan_serve.dialects.openai.logprobs import CompletionLogprobsBuilder
from jan_serve.dialects.openai.render_common import ReplyHead, usage_of


class CompletionForm(msgspec.Struct, frozen=True):
    """n: choices for each prompt. prompts: their texts, if echo or logprobs need them."""

    prompts: Sequence[str]
    n: int
    echo: bool = False
    suffix: str | None = None
    logprobs: bool = False
    include_usage: bool = False


class CompletionRenderer:
    """A stream has text, then the finish reason, then the usage on request."""

    def __init__(self, head: ReplyHead, form: CompletionForm) -> None:
        self._head = head
        self._form = form
        self._pieces: defaultdict[int, list[CompletionChoice]] = defaultdict(list)
        self._usage = Usage()
        self._append_suffix: set[int] = set()
        self._offsets: dict[int, CompletionLogprobsBuilder] = {}

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
        return {
            "id": self._head.id,
            "object": "text_completion",
            "created": self._head.created,
            "model": self._head.model,
            "choices": [self._joined(index) for index in sorted(self._pieces)],
            "usage": usage_of(self._usage),
        }

    def _joined(self, index: int) -> CompletionChoice:
        pieces = self._pieces[index]
        joined = _piece(index, "".join(piece["text"] for piece in pieces))
        joined["finish_reason"] = pieces[-1]["finish_reason"]
        if self._form.logprobs:
            joined["logprobs"] = _concatenated([piece["logprobs"] for piece in pieces])
        return joined

    def chunks(self, event: GenerationEvent) -> Iterator[CreateCompletionResponse]:
        if isinstance(event, Started):
            self._head.served_by(event.model)
        for piece in self._new_pieces(event):
            yield self._chunk([piece])
        if isinstance(event, Completed) and self._form.include_usage:
            yield self._chunk([], event.usage)

    def _chunk(self, choices: list[CompletionChoice], usage: Usage | None = None) -> CreateCompletionResponse:
        chunk: CreateCompletionResponse = {
            "id": self._head.id,
            "object": "text_completion",
            "created": self._head.created,
            "model": self._head.model,
            "choices": choices,
        }
        if self._form.include_usage:
            chunk["usage"] = usage_of(usage) if usage is not None else None
        return chunk

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
