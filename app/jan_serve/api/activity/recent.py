"""The requests that ask a model: those that run and the last that ended. Text only of prompts that a setting keeps."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final, Literal

import msgspec
from starlette.types import Scope

from jan_serve.core.trace import PhaseSpan, RequestTrace
from jan_serve.http.guards.guard import header_values
from jan_serve.http.request_record import RequestRecord, route_of

KEPT: Final = 512
_PROGRAM_CHARS: Final = 60
MAX_BYTES: Final = 64 << 20
"""The most bytes that the prompts of ended requests take together."""
_ID_BYTES: Final = 32

State = Literal["waiting", "reading", "thinking", "writing", "done", "failed", "cancelled"]


class Activity(msgspec.Struct, eq=False):
    """One request. program: how its User-Agent begins. arrived: Unix time. status, total_s: None while it runs."""

    record: RequestRecord
    program: str
    arrived: float
    scope: Scope | None
    route: str = ""
    status: int | None = None
    total_s: float | None = None

    @property
    def owner(self) -> str | None:
        return self.record.trace.owner

    def shown_route(self) -> str:
        return route_of(self.scope) if self.scope is not None else self.route

    def state(self) -> State:
        record = self.record
        if self.status is not None:
            return "cancelled" if record.cancelled else "failed" if record.error else "done"
        if record.first_token_s is not None:
            return "thinking" if record.thinking else "writing"
        return "reading" if record.prompt_tokens else "waiting"

    @property
    def began(self) -> float:
        """Start by the clock of `time.perf_counter`, as all its times."""
        return self.record.started

    @property
    def ended(self) -> float:
        return self.record.started + (self.record.elapsed_s() if self.total_s is None else self.total_s)

    def phases(self) -> Iterator[PhaseSpan]:
        return self.record.phases(self.ended - self.began)

    def span(self, phase: str) -> tuple[float, float]:
        """When a phase began and ended, as far as it is known."""
        found = next((span for span in self.phases() if span.name == phase), None)
        return (found.began, found.began + found.seconds) if found else (self.ended, self.ended)

    @property
    def has_model_since(self) -> float:
        return self.span("load")[1] if "load" in self.record.trace.phases else self.began

    @property
    def read_tokens(self) -> int:
        """Tokens of the prompt that came from no cache."""
        return max(0, self.record.prompt_tokens - self.record.cached_tokens)


class KeptPrompts:
    """Rendered prompts of the latest requests, in memory alone. The older ones leave first."""

    def __init__(self, number: int, max_bytes: int = MAX_BYTES) -> None:
        self._number = number
        self._max_bytes = max_bytes
        self._kept: deque[tuple[RequestTrace, int]] = deque()
        self._bytes = 0

    def end(self, trace: RequestTrace) -> None:
        pieces = [piece for prompt in trace.prompts or () for piece in prompt.pieces]
        ids = sum(len(piece) for piece in pieces if isinstance(piece, tuple))
        size = sum(map(sys.getsizeof, pieces)) + _ID_BYTES * ids
        if not size:
            return
        self._kept.append((trace, size))
        self._bytes += size
        while len(self._kept) > self._number or self._bytes > self._max_bytes:
            oldest, size = self._kept.popleft()
            oldest.prompts = None
            self._bytes -= size


class Activities:
    """The requests of models that run or ended lately. One event loop calls `begin` and `end` with every request."""

    def __init__(
        self,
        keep_prompts: int = 0,
        kept: int = KEPT,
        ended: Callable[[Activity], None] = lambda activity: None,
    ) -> None:
        """keep_prompts: number of ended requests whose prompts are kept too. ended: called with each request."""
        self._has_ended = ended
        self._keeps_prompts = keep_prompts > 0
        self._prompts = KeptPrompts(keep_prompts)
        self._running: dict[int, Activity] = {}
        self._ended: deque[Activity] = deque(maxlen=kept)

    def begin(self, scope: Scope, record: RequestRecord) -> None:
        name = b"".join(header_values(scope, b"user-agent")[:1]).decode("latin-1")
        program = name.partition(" ")[0][:_PROGRAM_CHARS]
        self._running[id(record)] = Activity(record, program, time.time(), scope)
        if self._keeps_prompts:
            record.trace.prompts = []

    def end(self, route: str, status: int, record: RequestRecord) -> None:
        activity = self._running.pop(id(record))
        if activity.owner is None:
            return
        activity.scope, activity.route = None, route
        activity.status, activity.total_s = status, record.elapsed_s()
        # The gaps of a long answer are megabytes, and only their number is shown.
        pieces = record.completion_tokens or record.pieces
        activity.record = msgspec.structs.replace(record, completion_tokens=pieces, token_gaps_s=[])
        self._ended.append(activity)
        self._prompts.end(record.trace)
        self._has_ended(activity)

    def all(self) -> Iterator[Activity]:
        """Requests of every owner, the latest first."""
        yield from (each for each in reversed(self._running.values()) if each.owner is not None)
        yield from reversed(self._ended)
