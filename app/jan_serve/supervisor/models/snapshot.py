"""What /health, /metrics and the model lists see of the supervisor: values of one moment."""

from __future__ import annotations

from jan_serve.core.engine_stats import EngineStats
from jan_serve.core.model_status import ModelState, ModelStatus
from jan_serve.supervisor.models.crash_backoff import Pause, Refuse
from jan_serve.supervisor.models.model_history import ModelHistory
from jan_serve.supervisor.models.model_slot import ModelSlot, SlotState


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
        keep_alive_left_s=slot.keep_alive_left_s(record.retention, now) if slot is not None else None,
        pinned=record.retention.pinned,
        group=record.retention.group,
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
