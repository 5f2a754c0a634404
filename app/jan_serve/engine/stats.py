"""The engine measures this for each Pong: a thread's phase, counters of its steps, and times of their parts.

All count since the worker started. The engine thread writes, others read.
"""

from __future__ import annotations

import bisect
import time
from collections.abc import Callable
from typing import Final, Literal

from jan_serve.core.engine_stats import STEP_SECONDS, STEP_SIZES, PartTimes, StepTimes

PhaseName = Literal["loading", "idle", "decode", "sample", "embed", "encode", "tokenize", "other"]


class PhaseClock:
    """The current phase, its start, and its request. One writer; readers get one consistent tuple."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self._current: tuple[PhaseName, float, int | None] = ("loading", clock(), None)

    def enter(self, name: PhaseName, request_id: int | None = None) -> None:
        self._current = (name, self.clock(), request_id)

    def read(self) -> tuple[PhaseName, float, int | None]:
        """Phase, seconds since its start, and its request."""
        name, since, request_id = self._current
        return name, max(0.0, self.clock() - since), request_id


_MAX_EXTRA: Final = 64
"""Accepted draft tokens of one turn that are counted separately."""


class EngineCounters:
    """Since the worker started. EngineStats explains each; its other values are counted where they arise."""

    def __init__(self) -> None:
        self.steps = self.prompt_tokens = self.computed = self.cached = self.shared = 0
        self.step_sizes = [0] * (len(STEP_SIZES) + 1)
        self.extra_tokens = [0] * (_MAX_EXTRA + 1)

    def count_step(self, size: int) -> None:
        """size: tokens that it computed."""
        self.steps += 1
        self.computed += size
        self.step_sizes[bisect.bisect_left(STEP_SIZES, size)] += 1

    def count_turn(self, accepted: int) -> None:
        """accepted: draft tokens beside the sampled one."""
        self.extra_tokens[min(accepted, _MAX_EXTRA)] += 1


Part = Literal["whole", "forward", "sampling", "join", "leave"]
_PARTS: Final[tuple[Part, ...]] = ("whole", "forward", "sampling", "join", "leave")


class StepClock:
    """Times the current step; `end` counts it under its kind. A part excludes other parts that run within it."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._kinds = {True: _Kind(), False: _Kind()}
        self._started = 0.0
        self._parts: dict[Part, float] = {}
        self.within = 0.0
        """Seconds of the parts that have ended within the current one."""

    def begin(self) -> None:
        self._started = self._clock()
        self._parts.clear()

    def part(self, name: Part) -> _Block:
        """A context manager that adds the time of its block to a part of the step."""
        return _Block(self, name)

    def now(self) -> float:
        return self._clock()

    def add(self, name: Part, seconds: float) -> None:
        self._parts[name] = self._parts.get(name, 0.0) + seconds

    def drop(self, name: Part) -> None:
        self._parts.pop(name, None)

    def end(self, *, prefills: bool) -> None:
        kind = self._kinds[prefills]
        self._parts["whole"] = self._clock() - self._started
        for name, seconds in self._parts.items():
            kind.parts[name].add(seconds)

    def fail(self, *, prefills: bool) -> None:
        self._kinds[prefills].failed += 1

    def times(self, *, prefills: bool) -> StepTimes:
        """Times of all steps of this kind. Any thread; a count may be one step ahead of its seconds."""
        kind = self._kinds[prefills]
        return StepTimes(**{name: kind.parts[name].times() for name in _PARTS}, failed=kind.failed)


class _Block:
    """Times one run of a part. A class, since `contextmanager` takes longer and a step has three or more."""

    __slots__ = ("_name", "_outer", "_started", "_times")

    def __init__(self, times: StepClock, name: Part) -> None:
        self._times = times
        self._name: Part = name
        self._started = self._outer = 0.0

    def __enter__(self) -> None:
        times = self._times
        self._outer, times.within = times.within, 0.0
        self._started = times.now()

    def __exit__(self, *exc_info: object) -> None:
        times = self._times
        seconds = times.now() - self._started
        times.add(self._name, seconds - times.within)
        times.within = self._outer + seconds


class _Kind:
    """The steps of one kind: with or without prefill."""

    def __init__(self) -> None:
        self.parts: dict[Part, _Durations] = {name: _Durations() for name in _PARTS}
        self.failed = 0


class _Durations:
    def __init__(self) -> None:
        self._counts = [0] * (len(STEP_SECONDS) + 1)
        self._seconds = 0.0

    def add(self, seconds: float) -> None:
        self._counts[bisect.bisect_left(STEP_SECONDS, seconds)] += 1
        self._seconds += seconds

    def times(self) -> PartTimes:
        return PartTimes(tuple(self._counts), self._seconds) if any(self._counts) else PartTimes()
