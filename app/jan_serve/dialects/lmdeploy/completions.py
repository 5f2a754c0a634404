"""LMDeploy's /v1/completions:

wire types, one GenerationRequest per prompt, and the answer, whole and as chunks. Pure; parsing raises
InvalidRequest.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Literal

import msgspec
from typing_extensions import TypedDict

from jan_serve.core.events import Completed, Finished, GenerationEvent, TextDelta, TokenInfo
from jan_serve.core.request import GenerationRequest, TextPrompt, TokenPrompt
from jan_serve.dialects.lmdeploy.common import (
    Answer,
    ReplyFacts,
    SamplingFields,
    Usage,
    candidates,
    choice_count,
    ids_of,
    request_of,
    stop_conditions,
    text_of,
    texts_of,
    token_limit,
)
from jan_serve.dialects.shared import limits
from jan_serve.dialects.shared.answers import StopDetail, stop_detail
from jan_serve.dialects.shared.wire_types import Inputs, Int, TextsOrTokens


class CompletionRequest(SamplingFields):
    """Texts or token ids to continue. `echo` and `suffix` have no effect, as in LMDeploy."""

    prompt: Annotated[Inputs, TextsOrTokens("prompt", limits.MAX_CHOICES, limits.MAX_PROMPT_TOKENS)]
    max_tokens: Int | None = 16
    logprobs: Int | None = None
    echo: bool | None = False
    suffix: str | None = None


class CompletionLogprobs(TypedDict):
    """Parallel lists, one entry per token. text_offset counts characters of the generated text."""

    text_offset: list[int]
    token_logprobs: list[float | None]
    tokens: list[str]
    top_logprobs: list[dict[str, float]]


class CompletionChoice(StopDetail):
    """One answer; in a stream, its next piece."""

    index: int
    text: str
    logprobs: CompletionLogprobs | None
    gen_tokens: list[int] | None
    finish_reason: str | None


class CompletionReply(TypedDict):
    """All answers, or one event of a stream. usage: in streams null, except in the last event if requested."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: Usage | None


def completion_requests(body: CompletionRequest) -> list[GenerationRequest]:
    prompts = [TextPrompt(item) if isinstance(item, str) else TokenPrompt(item) for item in body.prompt]
    n = choice_count(body.n, len(prompts))
    request = request_of(
        body,
        prompts[0],
        stop_conditions(body, max_tokens=token_limit(body.max_completion_tokens, body.max_tokens)),
        model=body.model,
        n=n,
        best_of=n,
        logprobs=candidates(body.logprobs, "logprobs"),
    )
    return [msgspec.structs.replace(request, prompt=prompt) for prompt in prompts]


class CompletionForm(msgspec.Struct, frozen=True, kw_only=True):
    """choices: of all prompts."""

    choices: int
    include_stop: bool = False
    token_ids: bool = False
    logprobs: bool = False
    include_usage: bool = False


class CompletionRenderer(Answer):
    """A stream has text, the finish reason without text, then the usage on request."""

    def __init__(self, head: ReplyFacts, form: CompletionForm) -> None:
        super().__init__(form.choices, include_stop=form.include_stop)
        self._head = head
        self._form = form
        self._builders = [LogprobsBuilder() for _ in range(form.choices)]

    def body(self) -> CompletionReply:
        choices: list[CompletionChoice] = [
            {
                "index": index,
                "text": choice.text,
                "logprobs": LogprobsBuilder().add(choice.tokens) if self._form.logprobs else None,
                "gen_tokens": choice.ids if self._form.token_ids else None,
                "finish_reason": choice.reason,
                **stop_detail(choice.finished),
            }
            for index, choice in enumerate(self.choices)
        ]
        return reply_of(self._head, choices, self.usage())

    def chunks(self, event: GenerationEvent) -> Iterator[CompletionReply]:
        self.add(event)
        match event:
            case TextDelta() as delta if delta.text or (self._shows_tokens and delta.tokens):
                yield self._chunk(delta.index, delta.text, delta.tokens, None)
            case Finished() as finished:
                end = self.shown_end(finished)
                yield self._chunk(finished.index, texts_of(end), end, finished)
            case Completed() if self._form.include_usage:
                yield reply_of(self._head, [], self.usage())
            case _:
                pass

    @property
    def _shows_tokens(self) -> bool:
        return self._form.token_ids or self._form.logprobs

    def _chunk(
        self, index: int, text: str, tokens: Sequence[TokenInfo], finished: Finished | None
    ) -> CompletionReply:
        logprobs = self._builders[index].add(tokens) if self._form.logprobs and tokens else None
        choice: CompletionChoice = {
            "index": index,
            "text": text,
            "logprobs": logprobs,
            "gen_tokens": ids_of(tokens) if self._form.token_ids else None,
            "finish_reason": None if finished is None else finished.reason,
            **stop_detail(finished),
        }
        return reply_of(self._head, [choice], None)


def reply_of(head: ReplyFacts, choices: list[CompletionChoice], usage: Usage | None) -> CompletionReply:
    return {
        "id": head.id,
        "object": "text_completion",
        "created": head.created,
        "model": head.model,
        "choices": choices,
        "usage": usage,
    }


class LogprobsBuilder:
    """Builds the parallel lists of one choice. Offsets count its characters.

    The text of a token or candidate is what it adds to the answer: empty if it leaves a character incomplete, the
    whole character if it completes one.
    """

    def __init__(self) -> None:
        self._offset = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def add(self, tokens: Iterable[TokenInfo]) -> CompletionLogprobs:
        lists: CompletionLogprobs = {
            "text_offset": [],
            "token_logprobs": [],
            "tokens": [],
            "top_logprobs": [],
        }
        for token in tokens:
            candidates = self._candidates(token)
            text = text_of(token) if token.special else self._decoder.decode(token.piece)
            if token.logprob is not None:
                candidates[text] = token.logprob
            lists["text_offset"].append(self._offset)
            lists["token_logprobs"].append(token.logprob)
            lists["tokens"].append(text)
            lists["top_logprobs"].append(candidates)
            if not token.special:
                self._offset += len(text)
        return lists

    def _candidates(self, token: TokenInfo) -> dict[str, float]:
        """Log-probabilities by text; of candidates with the same text, the most likely."""
        by_text: dict[str, float] = {}
        before = self._decoder.getstate()
        for entry in token.top:
            by_text.setdefault(self._decoder.decode(entry.piece), entry.logprob)
            self._decoder.setstate(before)
        return by_text
