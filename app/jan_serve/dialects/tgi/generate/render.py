"""Renders an answer in TGI's native forms, whole and as a stream. Pure."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from jan_serve.core.events import (
    Completed,
    Finished,
    GenerationEvent,
    PromptTokens,
    Started,
    TextDelta,
    Timings,
    TokenInfo,
    TokenLogprob,
)
from jan_serve.dialects.tgi.generate.wire import (
    BestOfSequence,
    Details,
    GenerateResponse,
    Parameters,
    PrefillToken,
    StreamResponse,
    Token,
)

_NO_LOGPROB: Final = 0.0


class Ending(msgspec.Struct, frozen=True):
    """How an answer ends. eos: the last token, not computed by the engine, if the grammar allows no more text."""

    max_new_tokens: int
    eos: TokenInfo | None

    def token(self, finished: Finished) -> TokenInfo | None:
        """The token that ended the text; it counts like any other. None if a stop string or a limit ended it."""
        if finished.end_token is not None or finished.reason == "length" or finished.stop is not None:
            return finished.end_token
        return self.eos

    def reason(self, finished: Finished, generated: int) -> str:
        """TGI's finish reason. The limit has precedence over the last token. generated: tokens, the last one too."""
        if generated >= self.max_new_tokens or finished.reason == "length":
            return "length"
        return "eos_token" if finished.stop is None else "stop_sequence"


class TokenTexts:
    """Texts of tokens. A character of several tokens belongs to the one that completes it."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def text(self, info: TokenInfo) -> str:
        return info.piece.decode("utf-8", "replace") if info.special else self._decoder.decode(info.piece)

    def token(self, info: TokenInfo) -> Token:
        return {
            "id": info.id,
            "text": self.text(info),
            "logprob": logprob_of(info),
            "special": info.special,
        }


def logprob_of(info: TokenInfo) -> float:
    """A token that was not sampled was certain."""
    return _NO_LOGPROB if info.logprob is None else info.logprob


class TokenHold:
    """Delays the newest token until it is known whether it is the last one, which has another form."""

    def __init__(self, ending: Ending) -> None:
        self._ending = ending
        self._held: TokenInfo | None = None
        self.count = 0

    def tokens(self, delta: TextDelta) -> Iterator[TokenInfo]:
        """Tokens that are not the last one."""
        for info in delta.tokens:
            yield from self._release(info)

    def rest(self, finished: Finished) -> tuple[list[TokenInfo], TokenInfo | None, str]:
        """Tokens before the last one, the last one if any, and the finish reason."""
        before: list[TokenInfo] = []
        end = self._ending.token(finished)
        if end is not None:
            before += self._release(end)
        last, self._held = self._held, None
        self.count += last is not None
        return before, last, self._ending.reason(finished, self.count)

    def _release(self, newer: TokenInfo) -> Iterator[TokenInfo]:
        if self._held is not None:
            self.count += 1
            yield self._held
        self._held = newer


class Generated(msgspec.Struct):
    """One generation, event by event."""

    texts: list[str] = msgspec.field(default_factory=list[str])
    tokens: list[TokenInfo] = msgspec.field(default_factory=list[TokenInfo])
    reason: str = ""
    seed: int | None = None

    @property
    def text(self) -> str:
        return "".join(self.texts)

    def add(self, event: TextDelta | Finished, ending: Ending) -> None:
        if isinstance(event, TextDelta):
            self.texts.append(event.text)
            self.tokens.extend(event.tokens)
            return
        end = ending.token(event)
        if end is not None:
            self.tokens.append(end)
        self.seed = event.seed
        self.reason = ending.reason(event, len(self.tokens))

    @property
    def score(self) -> float:
        """The mean log-probability, which ranks best_of."""
        return sum(map(logprob_of, self.tokens)) / max(1, len(self.tokens))


class WholeAnswer:
    """The whole answer. as_list: in an array of one, as in `POST /`."""

    def __init__(self, parameters: Parameters, ending: Ending, *, prefix: str, as_list: bool) -> None:
        """prefix: text before the generated text: the input, if the request wants the full text."""
        self._parameters = parameters
        self._ending = ending
        self._prefix = prefix
        self._as_list = as_list
        self._sequences = [Generated() for _ in range(parameters.best_of or 1)]
        self._prefill: list[PrefillToken] = []
        self.timings = Timings()

    def add(self, event: GenerationEvent) -> None:
        match event:
            case PromptTokens(tokens=tokens):
                self._prefill = [
                    {"id": info.id, "text": info.piece.decode("utf-8", "replace"), "logprob": info.logprob}
                    for info in tokens
                ]
            case (TextDelta() | Finished()) as choice:
                self._sequences[choice.index].add(choice, self._ending)
            case Completed() as completed:
                self.timings = completed.timings
            case _:
                pass

    def body(self) -> GenerateResponse | list[GenerateResponse]:
        best, *others = self._ranked()
        answer: GenerateResponse = {"generated_text": self._prefix + best.text}
        if self._parameters.details or self._parameters.decoder_input_details:
            answer["details"] = self._details(best, others)
        return [answer] if self._as_list else answer

    @property
    def generated_tokens(self) -> int:
        """Tokens of the best answer, the end-of-generation token too."""
        return len(self._ranked()[0].tokens)

    def _ranked(self) -> list[Generated]:
        return sorted(self._sequences, key=lambda sequence: sequence.score, reverse=True)

    def _details(self, best: Generated, others: Iterable[Generated]) -> Details:
        details: Details = {
            "finish_reason": best.reason,
            "generated_tokens": len(best.tokens),
            "seed": best.seed,
            "prefill": self._prefill,
            "tokens": _tokens(best),
        }
        losers = [self._loser(sequence) for sequence in others]
        if losers:
            details["best_of_sequences"] = losers
        if self._parameters.top_n_tokens:
            details["top_tokens"] = _top_tokens(best)
        return details

    def _loser(self, sequence: Generated) -> BestOfSequence:
        loser: BestOfSequence = {
            "generated_text": self._prefix + sequence.text,
            "finish_reason": sequence.reason,
            "generated_tokens": len(sequence.tokens),
            "seed": sequence.seed,
            "prefill": self._prefill,
            "tokens": _tokens(sequence),
        }
        if self._parameters.top_n_tokens:
            loser["top_tokens"] = _top_tokens(sequence)
        return loser


def _tokens(sequence: Generated) -> list[Token]:
    texts = TokenTexts()
    return [texts.token(info) for info in sequence.tokens]


def _top_tokens(sequence: Generated) -> list[list[Token]]:
    return [_candidates(info) for info in sequence.tokens]


def _candidates(info: TokenInfo) -> list[Token]:
    return [_candidate(entry) for entry in info.top]


def _candidate(entry: TokenLogprob) -> Token:
    text = entry.piece.decode("utf-8", "replace")
    return {"id": entry.id, "text": text, "logprob": entry.logprob, "special": entry.special}


class TokenStream:
    """The stream: one event a token. The last one has the whole text."""

    def __init__(self, parameters: Parameters, ending: Ending, *, prefix: str) -> None:
        self._parameters = parameters
        self._hold = TokenHold(ending)
        self._prefix = prefix
        self._texts: list[str] = []
        self._names = TokenTexts()
        self._index = 0
        self._n_input = 0

    def chunks(self, event: GenerationEvent) -> Iterator[StreamResponse]:
        match event:
            case Started() as started:
                self._n_input = started.prompt_tokens
            case TextDelta() as delta:
                self._texts.append(delta.text)
                yield from map(self._event, self._hold.tokens(delta))
            case Finished() as finished:
                before, last, reason = self._hold.rest(finished)
                yield from map(self._event, before)
                if last is not None:
                    yield self._last(last, finished, reason)
            case _:
                pass

    def _event(self, info: TokenInfo) -> StreamResponse:
        self._index += 1
        token = self._names.token(info)
        if info.top:
            return {
                "index": self._index,
                "token": token,
                "top_tokens": _candidates(info),
                "generated_text": None,
                "details": None,
            }
        return {"index": self._index, "token": token, "generated_text": None, "details": None}

    def _last(self, info: TokenInfo, finished: Finished, reason: str) -> StreamResponse:
        event = self._event(info)
        event["generated_text"] = self._prefix + "".join(self._texts)
        if self._parameters.details:
            event["details"] = {
                "finish_reason": reason,
                "generated_tokens": self._hold.count,
                "seed": finished.seed,
                "input_length": self._n_input,
            }
        return event
