"""Events of an answer in TGI's native forms, whole and as a stream. Pure.

Log-probabilities are those of the model; TGI gives those after penalties, masks and temperature.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from jan_serve.api.dialects.tgi.wire import (
    BestOfSequence,
    Details,
    GenerateRequest,
    GenerateResponse,
    PrefillToken,
    StreamResponse,
    Token,
)
from jan_serve.core.events import (
    Completed,
    Finished,
    PromptTokens,
    Started,
    TextDelta,
    Timings,
    TokenInfo,
    TokenLogprob,
    Usage,
)
from jan_serve.generation.batch import PromptEvent

_NO_LOGPROB: Final = 0.0


class TokenTexts:
    """Texts of tokens: a character that several tokens make belongs to the one that completes it."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def token(self, info: TokenInfo) -> Token:
        """The token in TGI's form."""
        text = info.piece.decode("utf-8", "replace") if info.special else self._decoder.decode(info.piece)
        logprob = info.logprob if info.logprob is not None else _NO_LOGPROB
        return {"id": info.id, "text": text, "logprob": logprob, "special": info.special}


def finish_reason(finished: Finished) -> str:
    """TGI's words: what ended the text."""
    if finished.stop is not None:
        return "stop_sequence"
    return "length" if finished.reason == "length" else "eos_token"


@dataclass(slots=True)
class _Sequence:
    """One generation as it comes together."""

    texts: list[str] = field(default_factory=list[str])
    infos: list[TokenInfo] = field(default_factory=list[TokenInfo])
    finished: Finished | None = None

    def finish(self, finished: Finished) -> None:
        self.finished = finished
        if finished.end_token is not None:
            self.infos.append(finished.end_token)

    @property
    def score(self) -> float:
        assert self.finished is not None
        return self.finished.mean_logprob if self.finished.mean_logprob is not None else float("-inf")


class WholeAnswer:
    """The whole answer. as_list: in an array of one, as `POST /` gives it."""

    def __init__(self, body: GenerateRequest, *, prefix: str, as_list: bool) -> None:
        """prefix: what comes before the generated text: the input, where the full text is wanted."""
        self._parameters = body.parameters
        self._prefix = prefix
        self._as_list = as_list
        self._sequences = [_Sequence() for _ in range(body.parameters.best_of or 1)]
        self._prefill: list[PrefillToken] = []
        self.completed = Completed(usage=Usage(), timings=Timings())

    def add(self, event: PromptEvent) -> None:
        """Take the next event."""
        match event.event:
            case PromptTokens(tokens=tokens):
                texts = TokenTexts()
                self._prefill = [
                    {"id": info.id, "text": texts.token(info)["text"], "logprob": info.logprob}
                    for info in tokens
                ]
            case TextDelta() as delta:
                self._sequences[delta.index].texts.append(delta.text)
                self._sequences[delta.index].infos.extend(delta.tokens)
            case Finished() as finished:
                self._sequences[finished.index].finish(finished)
            case Completed() as completed:
                self.completed = completed
            case _:
                pass

    def body(self) -> GenerateResponse | list[GenerateResponse]:
        """The response."""
        ranked = sorted(self._sequences, key=lambda sequence: sequence.score, reverse=True)
        best = ranked[0]
        answer: GenerateResponse = {"generated_text": self._prefix + "".join(best.texts)}
        if self._parameters.details or self._parameters.decoder_input_details:
            answer["details"] = self._details(best, ranked[1:])
        return [answer] if self._as_list else answer

    @property
    def generated_tokens(self) -> int:
        """Of all sequences, the tokens that ended them too."""
        return sum(len(sequence.infos) for sequence in self._sequences)

    def _details(self, best: _Sequence, others: Iterable[_Sequence]) -> Details:
        assert best.finished is not None
        details: Details = {
            "finish_reason": finish_reason(best.finished),
            "generated_tokens": len(best.infos),
            "seed": best.finished.seed,
            "prefill": self._prefill,
            "tokens": _tokens(best),
        }
        losers = [self._loser(sequence) for sequence in others]
        if losers:
            details["best_of_sequences"] = losers
        if self._parameters.top_n_tokens:
            details["top_tokens"] = _top_tokens(best)
        return details

    def _loser(self, sequence: _Sequence) -> BestOfSequence:
        assert sequence.finished is not None
        loser: BestOfSequence = {
            "generated_text": self._prefix + "".join(sequence.texts),
            "finish_reason": finish_reason(sequence.finished),
            "generated_tokens": len(sequence.infos),
            "seed": sequence.finished.seed,
            "prefill": self._prefill,
            "tokens": _tokens(sequence),
        }
        if self._parameters.top_n_tokens:
            loser["top_tokens"] = _top_tokens(sequence)
        return loser


def _tokens(sequence: _Sequence) -> list[Token]:
    texts = TokenTexts()
    return [texts.token(info) for info in sequence.infos]


def _top_tokens(sequence: _Sequence) -> list[list[Token]]:
    return [[_candidate(entry) for entry in info.top] for info in sequence.infos]


def _candidate(entry: TokenLogprob) -> Token:
    text = entry.piece.decode("utf-8", "replace")
    return {"id": entry.id, "text": text, "logprob": entry.logprob, "special": False}


class TokenStream:
    """The stream: one event a token, of which the last brings the whole text. The newest token is held for that."""

    def __init__(self, body: GenerateRequest, *, prefix: str) -> None:
        self._parameters = body.parameters
        self._prefix = prefix
        self._texts: list[str] = []
        self._names = TokenTexts()
        self._held: TokenInfo | None = None
        self._count = 0
        self._n_input = 0

    def chunks(self, event: PromptEvent) -> Iterator[StreamResponse]:
        """The events of one event."""
        match event.event:
            case Started() as started:
                self._n_input = started.prompt_tokens
            case TextDelta() as delta:
                self._texts.append(delta.text)
                for info in delta.tokens:
                    yield from self._release(info)
            case Finished() as finished:
                if finished.end_token is not None:
                    yield from self._release(finished.end_token)
                yield self._last(finished)
            case _:
                pass

    def _release(self, newer: TokenInfo) -> Iterator[StreamResponse]:
        if self._held is not None:
            yield self._event(self._held)
        self._held = newer

    def _event(self, info: TokenInfo) -> StreamResponse:
        self._count += 1
        event: StreamResponse = {
            "index": self._count,
            "token": self._names.token(info),
            "generated_text": None,
            "details": None,
        }
        if info.top:
            # TGI writes the candidates behind the token.
            event = {
                "index": event["index"],
                "token": event["token"],
                "top_tokens": [_candidate(entry) for entry in info.top],
                "generated_text": None,
                "details": None,
            }
        return event

    def _last(self, finished: Finished) -> StreamResponse:
        held = self._held if self._held is not None else TokenInfo(0, b"", True, _NO_LOGPROB)
        event = self._event(held)
        event["generated_text"] = self._prefix + "".join(self._texts)
        if self._parameters.details:
            event["details"] = {
                "finish_reason": finish_reason(finished),
                "generated_tokens": self._count,
                "seed": finished.seed,
                "input_length": self._n_input,
            }
        return event
