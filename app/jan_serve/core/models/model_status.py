"""State of the models of a server at one moment, as /health, /metrics and the model lists show it."""

from __future__ import annotations

from typing import Literal

import msgspec

from jan_serve.core.engine_stats import EngineStats
from jan_serve.core.models.model_facts import ModelFacts

ModelState = Literal["unloaded", "loading", "ready", "stopping", "restarting", "failed"]


class ModelStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One model that was requested since the front started.

    leases: requests that hold it; waiting: requests that wait for it. load_fraction: 0 to 1, while loading.
    restarting: it crashed; the next request after the back-off restarts it. failed: it crashed too often.
    reason: why it is not loaded, safe to show. retry_after_s: until it may be restarted.
    stats: of the last pulse; their totals start at 0 with every load. The totals here count since the front started.
    taken_bytes: of memory, estimated while it loads. ttl_left_s: until it is unloaded if idle; None is never.
    modalities: of the last load, also after it. lost_devices: accelerators of an earlier load that the last one did not
    find.
    """

    name: str
    path: str
    state: ModelState
    pid: int | None = None
    leases: int = 0
    waiting: int = 0
    load_fraction: float = 0.0
    facts: ModelFacts | None = None
    modalities: tuple[str, ...] = ()
    stats: EngineStats = EngineStats()
    loads_total: int = 0
    crashes_total: int = 0
    stalls_total: int = 0
    retries_total: int = 0
    reason: str | None = None
    retry_after_s: float | None = None
    taken_bytes: int = 0
    ttl_left_s: float | None = None
    pinned: bool = False
    group: str | None = None
    lost_devices: tuple[str, ...] = ()

    @property
    def is_ready(self) -> bool:
        return self.state == "ready"


class ManagerSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """All models that were requested. draining: new requests are rejected."""

    draining: bool
    models: tuple[ModelStatus, ...]
