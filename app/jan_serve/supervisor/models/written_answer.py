"""What was sent of an answer so far, from which the next worker goes on."""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable

import msgspec

from jan_serve.ipc.messages import (
    Accepted,
    Chunk,
    EngineEvent,
    EngineRequest,
    PromptScored,
    SequenceFinished,
    WrittenChoice,
    WrittenParts,
)

_ID = "i"


class _Choice(msgspec.Struct):
    """What was sent of one choice, as it grows; see `WrittenChoice`."""

    ids: array[int] = msgspec.field(default_factory=lambda: array(_ID))
    characters: int = 0
    draws: int = 0
    sum_logprob: float = 0.0
    finished: int | None = None

    def written(self) -> WrittenChoice:
        if self.finished is not None:
            return WrittenChoice(num_tokens=self.finished, finished=True)
        return WrittenChoice(
            tokens=tuple(self.ids),
            num_tokens=len(self.ids),
            characters=self.characters,
            draws=self.draws,
            sum_logprob=self.sum_logprob,
        )


class WrittenAnswer:
    """The events of one request, over all its workers. The context bounds what it keeps: four bytes a token."""

    def __init__(self, request: EngineRequest, clock: Callable[[], float] = time.monotonic) -> None:
        self._request = request
        self._clock = clock
        self._began = clock()
        self._first_token: float | None = None
        self._is_accepted = False
        self._choices = [_Choice() for _ in range(request.n)]

    def rest(self) -> EngineRequest:
        """The request for a worker: the whole one at first, then what is left of it."""
        if not self._is_accepted:
            return self._request
        now, first = self._clock(), self._first_token
        parts = WrittenParts(
            choices=tuple(choice.written() for choice in self._choices),
            waited_s=(now if first is None else first) - self._began,
            decoded_s=None if first is None else now - first,
        )
        return msgspec.structs.replace(self._request, written=parts)

    def add(self, event: EngineEvent) -> bool:
        """Keep an event. Returns whether it is new: a worker that goes on accepts the request again."""
        match event:
            case Chunk():
                if self._first_token is None:
                    self._first_token = self._clock()
                choice = self._choices[event.index]
                choice.characters += len(event.text)
                if event.ids:
                    choice.ids.extend(event.ids)
                    choice.draws = event.draws
                if self._request.logprobs is not None:
                    choice.sum_logprob += sum(info.logprob or 0.0 for info in event.tokens)
            case SequenceFinished():
                choice = self._choices[event.index]
                choice.finished = event.completion_tokens
                choice.ids = array(_ID)
            case Accepted():
                is_first, self._is_accepted = not self._is_accepted, True
                return is_first
            case PromptScored():
                self._request = msgspec.structs.replace(self._request, prompt_logprobs=None)
            case _:
                pass
        return True
