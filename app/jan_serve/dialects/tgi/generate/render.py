"""Renders an answer in TGI's native forms, whole and as a stream. Pure."""

from __future__ import annotations

import codecs
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from jan_serve import __version__
from jan_serve.core.events import (
    Completed,
    Finished,
    GenerationEvent,
    PromptTokens,
    Started,
    TextDelta,
    Timings,
    TokenInfo,
)
from jan_serve.core.transcript import started_s
from jan_serve.dialects.tgi.generate.parse import Details, GenerateResponse, Parameters, Token, Usage

TGI_VERSION: Final = "3.3.6"
DOCKER_LABEL: Final = f"jan-serve-{__version__}"


class ReplyFacts:
    """What the replies and events of the routes under /v1 begin with."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._created = started_s()

    def head(self, kind: str) -> dict[str, Any]:
        return {
            "object": kind,
            "id": "",
            "created": self._created,
            "model": self._model,
            "system_fingerprint": f"{TGI_VERSION}-{DOCKER_LABEL}",
        }


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


def finish_reason(reason: str) -> str:
    """The finish reason in the answers of the routes under /v1."""
    return "stop" if reason == "eos_token" else reason


class TokenTexts:
    """Texts of tokens. A character of several tokens belongs to the one that completes it."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def text(self, info: TokenInfo) -> str:
        return info.piece.decode("utf-8", "replace") if info.special else self._decoder.decode(info.piece)

    def token(self, info: TokenInfo) -> Token:
        return {"id": info.id, "text": self.text(info), "logprob": logprob_of(info), "special": info.special}


def logprob_of(info: TokenInfo) -> float:
    """A token that was not sampled was certain."""
    return 0.0 if info.logprob is None else info.logprob


class TokenHold:
    """Delays the newest token until it is known whether it is the last one, which has another form."""

    def __init__(self, ending: Ending) -> None:
        self._ending = ending
        self._held: TokenInfo | None = None
        self.count = 0

    def tokens(self, event: TextDelta | Finished) -> Iterator[tuple[TokenInfo, str]]:
        """Tokens with the finish reason, which is empty but for the last one."""
        if isinstance(event, TextDelta):
            newer = event.tokens
        else:
            end = self._ending.token(event)
            newer = (end,) if end is not None else ()
        for info in newer:
            if self._held is not None:
                self.count += 1
                yield self._held, ""
            self._held = info
        if isinstance(event, Finished) and self._held is not None:
            self.count += 1
            yield self._held, self._ending.reason(event, self.count)
            self._held = None


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


class Collected:
    """The generations of a call, event by event. order: their indices, in the order of their ends."""

    def __init__(self, endings: Sequence[Ending]) -> None:
        self._endings = endings
        self.sequences = [Generated() for _ in endings]
        self.order: list[int] = []
        self.prompt: tuple[TokenInfo, ...] = ()
        self.prompt_tokens = 0
        self.timings = Timings()

    def add(self, event: GenerationEvent) -> None:
        match event:
            case Started() as started:
                self.prompt_tokens += started.prompt_tokens
            case PromptTokens(tokens=tokens):
                self.prompt = tokens
            case (TextDelta() | Finished()) as choice:
                self.sequences[choice.index].add(choice, self._endings[choice.index])
                if isinstance(choice, Finished):
                    self.order.append(choice.index)
            case Completed() as completed:
                self.timings = completed.timings
            case _:
                pass

    @property
    def generated_tokens(self) -> list[int]:
        """Tokens of each generation, the end-of-generation token too."""
        return [len(sequence.tokens) for sequence in self.sequences]

    @property
    def usage(self) -> Usage:
        return usage_of(self.prompt_tokens, sum(self.generated_tokens))


def usage_of(prompt_tokens: int, completion_tokens: int) -> Usage:
    return Usage(
        prompt_tokens=prompt_tokens,
        completion_tokens=completion_tokens,
        total_tokens=prompt_tokens + completion_tokens,
    )


class WholeAnswer(Collected):
    """The whole answer. as_list: in an array of one, as in `POST /`."""

    def __init__(self, parameters: Parameters, ending: Ending, *, prefix: str, as_list: bool) -> None:
        """prefix: text before the generated text: the input, if the request wants the full text."""
        super().__init__([ending] * (parameters.best_of or 1))
        self._parameters = parameters
        self._prefix = prefix
        self._as_list = as_list

    def body(self) -> GenerateResponse | list[GenerateResponse]:
        best, *others = self._ranked()
        answer: GenerateResponse = {"generated_text": self._prefix + best.text}
        if self._parameters.details or self._parameters.decoder_input_details:
            answer["details"] = self._details(best)
            if others:
                answer["details"]["best_of_sequences"] = [
                    {"generated_text": self._prefix + sequence.text, **self._details(sequence)}
                    for sequence in others
                ]
        return [answer] if self._as_list else answer

    @property
    def best_tokens(self) -> int:
        """Tokens of the best answer, the end-of-generation token too."""
        return len(self._ranked()[0].tokens)

    def _ranked(self) -> list[Generated]:
        return sorted(self.sequences, key=lambda sequence: sequence.score, reverse=True)

    def _details(self, sequence: Generated) -> Details:
        texts = TokenTexts()
        details = Details(
            finish_reason=sequence.reason,
            generated_tokens=len(sequence.tokens),
            seed=sequence.seed,
            prefill=[
                {"id": info.id, "text": info.piece.decode("utf-8", "replace"), "logprob": info.logprob}
                for info in self.prompt
            ],
            tokens=[texts.token(info) for info in sequence.tokens],
        )
        if self._parameters.top_n_tokens:
            details["top_tokens"] = [_candidates(info) for info in sequence.tokens]
        return details


def _candidates(info: TokenInfo) -> list[Token]:
    return [
        {
            "id": entry.id,
            "text": entry.piece.decode("utf-8", "replace"),
            "logprob": entry.logprob,
            "special": entry.special,
        }
        for entry in info.top
    ]


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

    def chunks(self, event: GenerationEvent) -> Iterator[dict[str, Any]]:
        match event:
            case Started() as started:
                self._n_input = started.prompt_tokens
            case TextDelta() as delta:
                self._texts.append(delta.text)
                for info, _ in self._hold.tokens(delta):
                    yield self._event(info)
            case Finished() as finished:
                for info, reason in self._hold.tokens(finished):
                    yield {**self._event(info), **(self._end(finished.seed, reason) if reason else {})}
            case _:
                pass

    def _event(self, info: TokenInfo) -> dict[str, Any]:
        self._index += 1
        top = {"top_tokens": _candidates(info)} if info.top else {}
        token = self._names.token(info)
        return {"index": self._index, "token": token, **top, "generated_text": None, "details": None}

    def _end(self, seed: int | None, reason: str) -> dict[str, Any]:
        details = {
            "finish_reason": reason,
            "generated_tokens": self._hold.count,
            "seed": seed,
            "input_length": self._n_input,
        }
        text = self._prefix + "".join(self._texts)
        return {"generated_text": text, "details": details if self._parameters.details else None}
