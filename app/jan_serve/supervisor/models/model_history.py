"""What is remembered of a model between its loads: crashes, counters, how long its requests take."""

from __future__ import annotations

from jan_serve.core.model_facts import ModelFacts
from jan_serve.errors import ModelFailed
from jan_serve.supervisor.limits import RestartLimits
from jan_serve.supervisor.models.crash_backoff import CrashLog, Pause, Refuse, Verdict, retry_after_s
from jan_serve.supervisor.models.model_source import ModelSource, Residence
from jan_serve.supervisor.workers.worker_process import WorkerEnd

_SERVICE_WEIGHT = 0.2
_ACCELERATORS = frozenset({"gpu", "igpu"})


class ModelHistory:
    """The history of one model name. A changed file starts with a clean crash log."""

    def __init__(self, source: ModelSource, limits: RestartLimits) -> None:
        self.source = source
        self.residence = Residence()
        """As configured when it was last asked for."""
        self.reason: str | None = None
        self.loads_total = 0
        self.crashes_total = 0
        self.stalls_total = 0
        self.parallel = 1
        """Sequences that its worker ran at once when it was last loaded."""
        self.lost_devices: tuple[str, ...] = ()
        """Accelerators that an earlier worker found and the last one did not: after a sleep, a driver may be gone."""
        self._devices: frozenset[str] = frozenset()
        self._limits = limits
        self._crashes = CrashLog(limits)
        self._mean_service_s = 1.0

    def seen(self, source: ModelSource, residence: Residence) -> None:
        """A request resolved to this file."""
        self.residence = residence
        if source != self.source:
            self.source = source
            self.reason = None
            self._crashes = CrashLog(self._limits)

    def loaded(self, facts: ModelFacts) -> None:
        """It is ready."""
        self.loads_total += 1
        self.parallel = max(facts.parallel, 1)
        self.reason = None
        found = frozenset(device.name for device in facts.devices if device.kind in _ACCELERATORS)
        self._devices |= found
        self.lost_devices = tuple(sorted(self._devices - found))

    def ended(self, end: WorkerEnd, now: float, ready_for_s: float) -> None:
        """Its worker ended by itself or for a stall."""
        self.reason = str(end)
        if end.stall is not None:
            self.stalls_total += 1
        if end.stall is not None and end.stall.phase == "sample":
            # A grammar did that, not the model: it says nothing about the next request.
            return
        self.crashes_total += 1
        self._crashes.record(now, ready_for_s=ready_for_s)

    def served(self, service_s: float) -> None:
        """A request held it for that long."""
        self._mean_service_s += _SERVICE_WEIGHT * (service_s - self._mean_service_s)

    def retry_after_s(self, waiting: int) -> float:
        """When a request that found a full queue may come back."""
        return retry_after_s(waiting, self.parallel, self._mean_service_s)

    def verdict(self, now: float) -> Verdict:
        """May it be started?"""
        return self._crashes.verdict(now)

    def refusal(self, verdict: Pause | Refuse) -> ModelFailed:
        """The error for its requests while the verdict holds."""
        name, reason = self.source.name, self.reason or "no reason was given"
        match verdict:
            case Refuse():
                message = f"The model `{name}` crashed {self._limits.max_crashes} times and was given up ({reason})."
            case Pause():
                message = f"The model `{name}` crashed and is about to be started again ({reason})."
        return ModelFailed(
            f"{message} It may be tried again in {verdict.delay_s:.0f} s.",
            retry_after=verdict.delay_s,
            param="model",
        )
