"""Folds the events of an answer, for whole replies of every dialect. Pure."""

from __future__ import annotations

from typing import Literal, NotRequired

import msgspec
from typing_extensions import TypedDict

from jan_serve.core.events import (
    Completed,
    Finished,
    FinishReason,
    GenerationEvent,
    ReasoningDelta,
    Started,
    TextDelta,
    TokenInfo,
    ToolCallDelta,
    Usage,
)


class StopDetail(TypedDict):
    """Beside a finish reason `length`: vLLM's name and value for a text that repeated itself."""

    stop_reason: NotRequired[Literal["repetition_detected"]]


def stop_detail(finished: Finished | None) -> StopDetail:
    return {"stop_reason": "repetition_detected"} if finished is not None and finished.repetition else {}


ChoiceEvent = TextDelta | ReasoningDelta | ToolCallDelta | Finished
"""Events that belong to one choice."""


class FoldedCall(msgspec.Struct):
    """A tool call so far. parts: of the arguments, as the model generated them."""

    id: str
    name: str
    parts: list[str] = msgspec.field(default_factory=list[str])

    @property
    def arguments(self) -> str:
        return "".join(self.parts)


class FoldedChoice(msgspec.Struct):
    """One choice so far. tokens: of texts and thoughts, if the request wants tokens."""

    texts: list[str] = msgspec.field(default_factory=list[str])
    thoughts: list[str] = msgspec.field(default_factory=list[str])
    calls: list[FoldedCall] = msgspec.field(default_factory=list[FoldedCall])
    tokens: list[TokenInfo] = msgspec.field(default_factory=list[TokenInfo])
    finished: Finished | None = None

    @property
    def text(self) -> str:
        """The answer without its thoughts."""
        return "".join(self.texts)

    @property
    def thought(self) -> str:
        return "".join(self.thoughts)

    @property
    def ids(self) -> list[int]:
        return [token.id for token in self.tokens]

    @property
    def reason(self) -> FinishReason:
        """Only of a finished choice."""
        assert self.finished is not None
        return self.finished.reason

    def add(self, event: ChoiceEvent) -> None:
        match event:
            case TextDelta():
                self.texts.append(event.text)
                self.tokens.extend(event.tokens)
            case ReasoningDelta():
                self.thoughts.append(event.text)
                self.tokens.extend(event.tokens)
            case ToolCallDelta():
                self._add_call(event)
            case Finished():
                self.finished = event

    def _add_call(self, delta: ToolCallDelta) -> None:
        if delta.id is not None:
            self.calls.append(FoldedCall(id=delta.id, name=delta.name or ""))
        self.calls[delta.call_index].parts.append(delta.arguments)


class FoldedAnswer:
    """An answer so far: how it began, its choices by index, and how it ended."""

    def __init__(self, choices: int = 1) -> None:
        self.started = Started(model="", prompt_tokens=0)
        self.choices = [FoldedChoice() for _ in range(choices)]
        self.completed = Completed(usage=Usage())

    def add(self, event: GenerationEvent) -> None:
        match event:
            case Started():
                self.started = event
            case TextDelta() | ReasoningDelta() | ToolCallDelta() | Finished():
                self.choices[event.index].add(event)
            case Completed():
                self.completed = event
            case _:
                pass
