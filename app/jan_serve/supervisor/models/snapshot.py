"""The status of one model, from its history and its slot."""

from __future__ import annotations

from jan_serve.core.engine_stats import EngineStats
from jan_serve.core.models.model_status import ModelState, ModelStatus
from jan_serve.supervisor.models.crash_backoff import Pause, Refuse
from jan_serve.supervisor.models.model_history import ModelHistory
from jan_serve.supervisor.models.model_slot import ModelSlot, SlotState


def model_status(history: ModelHistory, slot: ModelSlot | None, waiting: int, now: float) -> ModelStatus:
    """The status now. slot: None if the model is not in memory. waiting: requests in the queue for it."""
    verdict = history.verdict(now)
    pong = slot.worker.pong if slot is not None else None
    return ModelStatus(
        name=history.source.name,
        path=history.source.path,
        state=_state(history, slot, now),
        pid=slot.worker.pid if slot is not None else None,
        leases=slot.leases if slot is not None else 0,
        waiting=waiting,
        load_fraction=slot.worker.load_fraction if slot is not None else 0.0,
        facts=slot.client.facts if slot is not None and slot.client is not None else None,
        modalities=history.modalities,
        stats=pong.stats if pong is not None else EngineStats(),
        loads_total=history.loads_total,
        crashes_total=history.crashes_total,
        stalls_total=history.stalls_total,
        reason=history.reason,
        retry_after_s=verdict.delay_s if isinstance(verdict, Pause | Refuse) else None,
        taken_bytes=slot.memory.total if slot is not None else 0,
        keep_alive_left_s=slot.keep_alive_left_s(history.retention, now) if slot is not None else None,
        pinned=history.retention.pinned,
        group=history.retention.group,
        lost_devices=history.lost_devices,
    )


def _state(history: ModelHistory, slot: ModelSlot | None, now: float) -> ModelState:
    if slot is not None and slot.state is not SlotState.GONE:
        dying = slot.worker.ending and slot.state is SlotState.READY
        return "restarting" if dying else slot.state.value
    match history.verdict(now):
        case Refuse():
            return "failed"
        case Pause():
            return "restarting"
        case _:
            return "unloaded"
