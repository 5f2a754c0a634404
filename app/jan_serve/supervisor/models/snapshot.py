"""What /health, /metrics and the model lists see of the supervisor: values of one moment."""

from __future__ import annotations

from typing import Literal

import msgspec

from jan_serve.core.engine_stats import EngineStats
from jan_serve.core.model_facts import ModelFacts
from jan_serve.supervisor.models.crash_backoff import Pause, Refuse
from jan_serve.supervisor.models.model_history import ModelHistory
from jan_serve.supervisor.models.model_slot import ModelSlot, SlotState

ModelState = Literal["unloaded", "loading", "ready", "stopping", "restarting", "failed"]


class ModelStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One model that was asked for since the start.

    leases: requests that hold it; waiting: requests that wait for it. load_fraction: 0 to 1, while loading.
    restarting: it crashed, and is in back-off until the next request may start it. failed: it crashed too often.
    reason: why it is not loaded, fit to show. retry_after_s: until it may be started again.
    stats: as of the last pulse; their totals start at 0 with every load. Totals here are since the front started.
    taken_bytes: of memory, as estimated while it loads. idle_left_s: until it goes if nobody asks; None is never.
    lost_devices: accelerators that an earlier load of it found, and the last one did not.
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
    taken_bytes: int = 0
    idle_left_s: float | None = None
    pinned: bool = False
    group: str | None = None
    lost_devices: tuple[str, ...] = ()


class ManagerSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """All models of one moment. draining: no new request is accepted any more."""

    draining: bool
    models: tuple[ModelStatus, ...]


def model_status(record: ModelHistory, slot: ModelSlot | None, waiting: int, now: float) -> ModelStatus:
    """One model as of now. slot: None where it is not in memory. waiting: requests in the queue for it."""
    verdict = record.verdict(now)
    pong = slot.worker.pong if slot is not None else None
    return ModelStatus(
        name=record.source.name,
        path=record.source.path,
        state=_state(record, slot, now),
        pid=slot.worker.pid if slot is not None else None,
        leases=slot.leases if slot is not None else 0,
        waiting=waiting,
        load_fraction=slot.worker.load_fraction if slot is not None else 0.0,
        facts=slot.client.facts if slot is not None and slot.client is not None else None,
        stats=pong.stats if pong is not None else EngineStats(),
        loads_total=record.loads_total,
        crashes_total=record.crashes_total,
        stalls_total=record.stalls_total,
        reason=record.reason,
        retry_after_s=verdict.delay_s if isinstance(verdict, Pause | Refuse) else None,
        taken_bytes=slot.taken.total if slot is not None else 0,
        idle_left_s=slot.idle_left_s(record.residence, now) if slot is not None else None,
        pinned=record.residence.pinned,
        group=record.residence.group,
        lost_devices=record.lost_devices,
    )


def _state(record: ModelHistory, slot: ModelSlot | None, now: float) -> ModelState:
    if slot is not None and slot.state is not SlotState.GONE:
        dying = slot.worker.ending and slot.state is SlotState.READY
        return "restarting" if dying else slot.state.value
    match record.verdict(now):
        case Refuse():
            return "failed"
        case Pause():
            return "restarting"
        case _:
            return "unloaded"
