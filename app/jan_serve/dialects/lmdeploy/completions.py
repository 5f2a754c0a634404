"""LMDeploy's /v1/completions: types, a GenerationRequest for each prompt, and the answer, whole and as chunks. Pure."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Any, Literal

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
    wants_usage,
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


class CompletionRenderer(Answer):
    """A stream has text, the finish reason without text, then the usage on request."""

    def __init__(self, head: ReplyFacts, body: CompletionRequest, requests: list[GenerationRequest]) -> None:
        choices = sum(request.n for request in requests)
        super().__init__(choices, include_stop=requests[0].stopping.include_stop)
        self._head = head
        self._shows_ids = bool(body.return_token_ids)
        self._shows_logprobs = requests[0].logprobs is not None
        self._includes_usage = wants_usage(body)
        self._builders = [LogprobsBuilder() for _ in range(choices)]

    def body(self) -> dict[str, Any]:
        choices = [
            self._choice(index, choice.text, choice.tokens, choice.finished, whole=True)
            for index, choice in enumerate(self.choices)
        ]
        return self._reply(choices, self.usage())

    def chunks(self, event: GenerationEvent) -> Iterator[dict[str, Any]]:
        self.add(event)
        shows_tokens = self._shows_ids or self._shows_logprobs
        match event:
            case TextDelta() as delta if delta.text or (shows_tokens and delta.tokens):
                yield self._reply([self._choice(delta.index, delta.text, delta.tokens)])
            case Finished() as finished:
                end = self.shown_end(finished)
                yield self._reply([self._choice(finished.index, texts_of(end), end, finished)])
            case Completed() if self._includes_usage:
                yield self._reply([], self.usage())
            case _:
                pass

    def _reply(self, choices: list[CompletionChoice], usage: Usage | None = None) -> dict[str, Any]:
        return {**self._head.members("text_completion"), "choices": choices, "usage": usage}

    def _choice(
        self,
        index: int,
        text: str,
        tokens: Sequence[TokenInfo],
        finished: Finished | None = None,
        *,
        whole: bool = False,
    ) -> CompletionChoice:
        return {
            "index": index,
            "text": text,
            "logprobs": self._builders[index].add(tokens)
            if self._shows_logprobs and (tokens or whole)
            else None,
            "gen_tokens": ids_of(tokens) if self._shows_ids else None,
            "finish_reason": None if finished is None else finished.reason,
            **stop_detail(finished),
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
        lists = CompletionLogprobs(text_offset=[], token_logprobs=[], tokens=[], top_logprobs=[])
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
