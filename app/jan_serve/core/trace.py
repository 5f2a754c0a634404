"""Where the time of a request goes, and what its prompt shares with earlier ones: hashes and counts, never text."""

from __future__ import annotations

from array import array
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from time import perf_counter
from typing import Final, Literal, NamedTuple

import msgspec

Phase = Literal["load", "template", "compile", "media", "growth", "restart"]
"""What happens to a request before the engine has it; `restart`, the wait for the next worker, also later."""

Operation = Literal["chat", "text_completion", "embeddings", "rank", "decide"]
"""What a request asks of a model, by the names that OpenTelemetry has, as far as it has one."""


class PhaseSpan(NamedTuple):
    """A phase on the clock of `time.perf_counter`, in seconds."""

    name: str
    began: float
    seconds: float


Change = Literal[
    "tools_order",
    "tool_added",
    "tool_removed",
    "tool_changed",
    "history_cut",
    "history_edited",
    "picture",
    "system",
    "text",
]
"""What a client changed in a prompt, as the code of the cause; `system` and `text` are lines of it."""

Sign = Literal["", "date", "billing", "tokens_left"]
"""What the changed line looks like."""


class Difference(msgspec.Struct, frozen=True):
    """The first part in which a prompt differs from the nearest earlier one of the same client.

    place: number of the line, message or tool, from 1. count: messages or tools that came or went.
    """

    change: Change
    place: int = 0
    count: int = 0
    sign: Sign = ""
    role: str = ""


class PromptParts(msgspec.Struct, eq=False):
    """Hashes of what a prompt consists of.

    tools, system: one per tool, one per line. messages: one per message, its pictures included. lines: of the texts of
    messages, one after another; ends: how many lines there are up to the end of each. tokens: length of the prompt;
    0 until it is known.
    """

    tools: tuple[int, ...]
    system: array[int]
    messages: array[int]
    lines: array[int] = msgspec.field(default_factory=lambda: array("q"))
    ends: array[int] = msgspec.field(default_factory=lambda: array("q"))
    tokens: int = 0

    def lines_of(self, message: int) -> array[int]:
        return self.lines[self.ends[message - 1] if message else 0 : self.ends[message]]


class KeptPrompt(msgspec.Struct, frozen=True):
    """A rendered prompt. pieces: texts and ids; None: an image or a sound. The others: as in EngineRequest."""

    pieces: tuple[str | tuple[int, ...] | None, ...]
    add_special: bool
    parse_special: bool


class RequestTrace(msgspec.Struct, eq=False):
    """phases: seconds, over all prompts of the request; began: when each began first, on the clock of `perf_counter`.

    nearest: the earlier prompt that shares most with this one. difference: None if this prompt goes on where that one
    ended. owner: the salt of who asks; None: no model is asked. model: the name in the request. context: headers for
    servers that this one asks, so that their spans of OpenTelemetry are below its own. prompts: None, unless they are
    to be kept.
    """

    phases: dict[str, float] = msgspec.field(default_factory=dict[str, float])
    began: dict[str, float] = msgspec.field(default_factory=dict[str, float])
    parts: PromptParts | None = None
    nearest: PromptParts | None = None
    difference: Difference | None = None
    owner: str | None = None
    operation: Operation = "chat"
    model: str | None = None
    prompts: list[KeptPrompt] | None = None
    context: dict[str, str] = msgspec.field(default_factory=dict[str, str])

    @property
    def before_s(self) -> float:
        """Seconds until the engine had it."""
        return sum(self.phases.values()) - self.phases.get("restart", 0.0)

    def spans(self) -> Iterator[PhaseSpan]:
        """The phases of the request so far."""
        for phase, seconds in self.phases.items():
            yield PhaseSpan(phase, self.began[phase], seconds)

    @contextmanager
    def spends(self, phase: Phase) -> Generator[None]:
        """Add the time of the block to a phase."""
        began = perf_counter()
        try:
            yield
        finally:
            self.spent(phase, began)

    def spent(self, phase: Phase, began: float) -> None:
        """Add the time since then."""
        self.began.setdefault(phase, began)
        self.phases[phase] = self.phases.get(phase, 0.0) + perf_counter() - began


_current: Final[ContextVar[RequestTrace | None]] = ContextVar("trace", default=None)


def begin_trace() -> RequestTrace:
    """The trace of the request whose task calls this."""
    trace = RequestTrace()
    _current.set(trace)
    return trace


def current_trace() -> RequestTrace:
    """That of the current request; outside one, a trace that nobody reads."""
    return _current.get() or RequestTrace()
