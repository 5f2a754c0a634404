"""What the engine measures for each Pong since it started. The engine thread writes, others read."""

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


_MAX_EXTRA: Final = 64  # accepted draft tokens of one turn that are counted separately


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
        self.clock = clock
        # By whether a step prefills.
        self._kinds: dict[bool, dict[Part, _Durations]] = {
            prefills: {name: _Durations() for name in _PARTS} for prefills in (True, False)
        }
        self._failed = {True: 0, False: 0}
        self._started = 0.0
        self.parts: dict[Part, float] = {}
        self.within = 0.0  # seconds of the parts that have ended within the current one

    def begin(self) -> None:
        self._started = self.clock()
        self.parts.clear()

    def part(self, name: Part) -> _Block:
        """A context manager that adds the time of its block to a part of the step."""
        return _Block(self, name)

    def drop(self, name: Part) -> None:
        self.parts.pop(name, None)

    def end(self, *, prefills: bool) -> None:
        self.parts["whole"] = self.clock() - self._started
        for name, seconds in self.parts.items():
            self._kinds[prefills][name].add(seconds)

    def fail(self, *, prefills: bool) -> None:
        self._failed[prefills] += 1

    def times(self, *, prefills: bool) -> StepTimes:
        """Times of all steps of this kind. Any thread; a count may be one step ahead of its seconds."""
        times = {name: durations.times() for name, durations in self._kinds[prefills].items()}
        return StepTimes(**times, failed=self._failed[prefills])


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
        self._started = times.clock()

    def __exit__(self, *exc_info: object) -> None:
        times = self._times
        seconds = times.clock() - self._started
        times.parts[self._name] = times.parts.get(self._name, 0.0) + seconds - times.within
        times.within = self._outer + seconds


class _Durations:
    def __init__(self) -> None:
        self._counts = [0] * (len(STEP_SECONDS) + 1)
        self._seconds = 0.0

    def add(self, seconds: float) -> None:
        self._counts[bisect.bisect_left(STEP_SECONDS, seconds)] += 1
        self._seconds += seconds

    def times(self) -> PartTimes:
        return PartTimes(tuple(self._counts), self._seconds) if any(self._counts) else PartTimes()
