"""A model's crashes and counters across its loads. Times are seconds of the caller's monotonic clock."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Final

from jan_serve.core.models import ModelFacts, ModelSource
from jan_serve.errors import (
    InvalidModel,
    JanServeError,
    ModelFailed,
    Unavailable,
)
from jan_serve.supervisor.crash_backoff import CrashLog, RestartLimits, Verdict
from jan_serve.supervisor.models.eviction import Retention
from jan_serve.supervisor.models.tries import RequestTrials
from jan_serve.supervisor.workers.worker_process import WorkerEnd

_PROJECTOR_TRIES = 2
_LOADS: Final = 3
"""Loads for each `retry`, of crashed ones as many as lead to a cool-down, which answers that have begun wait for."""
_NATIVE_ENDS: Final = frozenset(f"signal {name}" for name in ("SIGABRT", "SIGSEGV", "SIGBUS", "SIGFPE"))
_OF_THE_MACHINE: Final = re.compile(
    r"bad_alloc|(failed|unable) to alloc|out of memory|(CUDA|ROCm|HIP|MUSA|SYCL|Metal) error|vk::|\brpc",
    re.IGNORECASE,
)
_SERVICE_WEIGHT = 0.2
_MIN_RETRY_S = 1.0
_MAX_RETRY_S = 60.0
_ACCELERATORS = frozenset({"gpu", "igpu", "rpc"})


class ModelHistory:
    """Loads and crashes of one model. A changed file starts with an empty crash log."""

    def __init__(self, source: ModelSource, limits: RestartLimits) -> None:
        self.source = source
        self.retention = Retention()
        self.reason: str | None = None
        self.loads_total = 0
        self.crashes_total = 0
        self.stalls_total = 0
        self.parallel = 1
        """Sequences that its last worker ran at once."""
        self.lost_devices: tuple[str, ...] = ()
        """Accelerators that an earlier worker found and the last one did not: a driver may be gone after a sleep."""
        self.modalities: tuple[str, ...] = ()
        self.projector_crashes: list[str] = []
        """How the worker ended at each load with its projector, since the last load that succeeded."""
        self.file_fault = ""
        """How llama.cpp ends the process at each load of this file; empty if it does not, as far as is known."""
        self.has_loaded = False
        """Whether this file was in memory before: a crash at its load has another cause."""
        self._crashed_loads = 0
        self._failed_loads = 0
        self._next_load = -math.inf
        self._has_crashed_at_load = False
        self._devices: frozenset[str] = frozenset()
        self.trials = RequestTrials()
        self._limits = limits
        self._crashes = CrashLog(limits)
        self._mean_service_s = 1.0

    @property
    def projector_fault(self) -> str:
        """Why the next load leaves the projector out; empty if it does not. One crash may have any cause, such as the
        kernel's out-of-memory killer: the projector is blamed for the second in a row."""
        return self.projector_crashes[-1] if len(self.projector_crashes) >= _PROJECTOR_TRIES else ""

    def seen(self, source: ModelSource, retention: Retention) -> None:
        """A request resolved to this file."""
        self.retention = retention
        if source != self.source:
            self.source = source
            self.modalities = ()
            self.has_loaded = False
            self._start_anew()
            self._crashes = CrashLog(self._limits)

    def _start_anew(self) -> None:
        self.reason = None
        self._crashed_loads = 0
        self._forget_load_crashes()

    def loaded(self, facts: ModelFacts) -> None:
        self.loads_total += 1
        self.has_loaded = True
        self._start_anew()
        self.nobody_waits()
        self.modalities = facts.modalities
        self.parallel = max(facts.parallel, 1)
        # The names of other machines' devices are numbers, and their descriptions addresses.
        found = frozenset(
            device.description if device.kind == "rpc" else device.name
            for device in facts.devices
            if device.kind in _ACCELERATORS
        )
        self._devices |= found
        self.lost_devices = tuple(sorted(self._devices - found))

    def load_crashed(self, end: WorkerEnd, retry: int) -> bool:
        """Count a crash in a load. Returns whether the load shall be tried again: several times for each `retry` if
        the file has loaded before, else once if native code ended."""
        if self.has_loaded and (end.stall is None or end.stall.phase == "silent"):
            self._crashed_loads += 1
            return self._crashed_loads <= _LOADS * retry
        is_second = bool(self.projector_crashes) or self._has_crashed_at_load
        self._forget_load_crashes()
        # Other signals come from outside, and devices and their memory fail without the file.
        if end.status not in _NATIVE_ENDS or end.stall or _OF_THE_MACHINE.search(end.words):
            return False
        self._has_crashed_at_load = True
        self.file_fault = str(end) if is_second else ""
        return not is_second

    def load_failed(self, error: JanServeError, now: float, retry: int) -> float | None:
        """Count a load that failed without a crash. Returns the seconds to the next try, None if there is none. The
        file has loaded before, so that what is missing, such as memory, may come back; a setting that is not met
        stays so. The pauses double: the tries end within about a minute."""
        self.reason = error.message
        if not self.has_loaded or not isinstance(error, Unavailable) or self._failed_loads >= _LOADS * retry:
            return None
        pause_s = self._limits.backoff_s[0] * 2**self._failed_loads
        self._failed_loads += 1
        self._next_load = now + pause_s
        return pause_s

    def nobody_waits(self) -> None:
        """The next request does not wait for the pause after a failed load, either."""
        self._failed_loads = 0
        self._next_load = -math.inf

    def _forget_load_crashes(self) -> None:
        self.projector_crashes.clear()
        self._has_crashed_at_load = False
        self.file_fault = ""

    def ended(self, end: WorkerEnd, now: float, *, by_request: bool = False) -> None:
        """Its worker crashed or stalled. by_request: because of the only request that it ran."""
        self.reason = str(end)
        if end.stall is not None:
            self.stalls_total += 1
        if end.stall is not None and end.stall.phase == "sample":
            # The grammar caused this, not the model: the next request is not at risk.
            return
        self.crashes_total += 1
        if not by_request:
            self._crashes.record(now)

    def served(self, service_s: float) -> None:
        self._mean_service_s += _SERVICE_WEIGHT * (service_s - self._mean_service_s)

    def retry_after_s(self, waiting: int) -> float:
        """Retry-After for a request that found a full queue: the time to serve those that wait, 1 to 60 s."""
        return min(max(waiting * self._mean_service_s / self.parallel, _MIN_RETRY_S), _MAX_RETRY_S)

    def verdict(self, now: float) -> Verdict:
        verdict = self._crashes.verdict(now)
        return verdict if verdict.given_up else Verdict(max(verdict.delay_s, self._next_load - now))

    def unusable(self) -> InvalidModel | None:
        """The error for requests if the file cannot be loaded at all, as far as is known."""
        if not self.file_fault:
            return None
        file = Path(self.source.path).name
        return InvalidModel(
            f"The model `{self.source.name}` cannot be used: llama.cpp ended at each load of {file}"
            f" ({self.file_fault})."
        )

    def refusal(self, verdict: Verdict) -> ModelFailed:
        """The error for requests while the verdict holds."""
        if verdict.given_up:
            what = f"crashed {self._limits.max_crashes} times and was given up"
        else:
            failed = "could not be loaded" if self._failed_loads else "crashed"
            what = f"{failed} and is about to be started again"
        return ModelFailed(
            f"The model `{self.source.name}` {what} ({self.reason or 'no reason was given'})."
            f" It may be tried again in {verdict.delay_s:.0f} s.",
            retry_after=verdict.delay_s,
            param="model",
        )
