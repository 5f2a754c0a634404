"""What /health, /metrics and the model lists see of the supervisor: values of one moment."""

from __future__ import annotations

from typing import Literal

import msgspec

from jan_serve.ipc.messages import EngineStats, ModelFacts

ModelState = Literal["unloaded", "loading", "ready", "stopping", "restarting", "failed"]


class ModelStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One model that was asked for since the start.

    leases: requests that hold it; waiting: requests that wait for it. load_fraction: 0 to 1, while loading.
    restarting: it crashed, and is in back-off until the next request may start it. failed: it crashed too often.
    reason: why it is not loaded, fit to show. retry_after_s: until it may be started again.
    stats: as of the last pulse; their totals start at 0 with every load. Totals here are since the front started.
    """

    name: str
    path: str
    state: ModelState
    pid: int | None = None
    leases: int = 0
    waiting: int = 0
    load_fraction: float = 0.0
    facts: ModelFacts | None = None
    stats: EngineStats = EngineStats()
    loads_total: int = 0
    crashes_total: int = 0
    stalls_total: int = 0
    reason: str | None = None
    retry_after_s: float | None = None


class ManagerSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """All models of one moment. draining: no new request is accepted any more."""

    draining: bool
    models: tuple[ModelStatus, ...]
