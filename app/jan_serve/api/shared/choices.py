"""A choice of an answer as its deltas come together: what every dialect's whole reply is made of. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from jan_serve.core.events import Finished, FinishReason, ReasoningDelta, TextDelta, TokenInfo, ToolCallDelta

ChoiceEvent = TextDelta | ReasoningDelta | ToolCallDelta | Finished
"""What has the index of a choice."""


@dataclass(slots=True)
class FoldedCall:
    """A tool call so far. parts: of the arguments, as the model wrote them."""

    id: str
    name: str
    parts: list[str] = field(default_factory=list[str])

    @property
    def arguments(self) -> str:
        """All of them so far."""
        return "".join(self.parts)


@dataclass(slots=True)
class FoldedChoice:
    """One answer so far. tokens: those of texts and thoughts, where the request wanted tokens."""

    texts: list[str] = field(default_factory=list[str])
    thoughts: list[str] = field(default_factory=list[str])
    calls: list[FoldedCall] = field(default_factory=list[FoldedCall])
    tokens: list[TokenInfo] = field(default_factory=list[TokenInfo])
    finished: Finished | None = None

    @property
    def text(self) -> str:
        """Of the answer, without thoughts."""
        return "".join(self.texts)

    @property
    def thought(self) -> str:
        """What the model thought."""
        return "".join(self.thoughts)

    @property
    def ids(self) -> list[int]:
        """Of the tokens."""
        return [token.id for token in self.tokens]

    @property
    def reason(self) -> FinishReason:
        """Why it ended. Only of a choice that has."""
        assert self.finished is not None
        return self.finished.reason

    def add(self, event: ChoiceEvent) -> None:
        """Take the next event of this choice."""
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
