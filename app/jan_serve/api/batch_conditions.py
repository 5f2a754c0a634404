"""What lets a batch work: free places, the hours of the day, mains power. See `journal.batch_runner.Conditions`."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

import psutil

from jan_serve.config import Settings
from jan_serve.core.daily_hours import DailyHours
from jan_serve.dialects.ports import ServedModels
from jan_serve.http.lifecycle import Lifecycle


def local_time() -> datetime:
    return datetime.now().astimezone()


def on_battery() -> bool:
    """Whether this machine runs on its battery. False without one, and where the system does not tell."""
    battery = psutil.sensors_battery() if hasattr(psutil, "sensors_battery") else None
    return battery is not None and battery.power_plugged is False


class BatchConditions:
    def __init__(
        self,
        settings: Settings,
        models: ServedModels,
        lifecycle: Lifecycle,
        *,
        now: Callable[[], datetime] = local_time,
        on_battery: Callable[[], bool] = on_battery,
    ) -> None:
        self._hours = settings.batch_hours
        self._may_drain = settings.batch_on_battery
        self._models = models
        self._lifecycle = lifecycle
        self._now = now
        self._on_battery = on_battery

    def places(self, model: str | None) -> int:
        """Those of the model; one until it is in memory. Two more wait, so that no place is idle between two lines."""
        ready = [status for status in self._models.snapshot().models if status.is_ready]
        # A name that only the server resolves is that of any of them.
        named = [status for status in ready if status.name == model] or ready
        parallel = max((status.facts.parallel for status in named if status.facts is not None), default=0)
        return parallel + 2 if parallel else 1

    def pause(self, model: str | None) -> str | None:
        if self._hours is not None and not DailyHours.parse(self._hours).has(self._now().time()):
            return f"batches run from {self._hours} (`batch_hours`)"
        if not self._may_drain and self._on_battery():
            return "this machine runs on its battery (`batch_on_battery`)"
        ready = [status.name for status in self._models.snapshot().models if status.is_ready]
        if self._lifecycle.open_requests and model not in (None, *ready):
            return "the model is not in memory, and other requests run: loading it could evict theirs"
        return None
