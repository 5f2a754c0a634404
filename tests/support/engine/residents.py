"""A resident model whose worker is not started."""

from __future__ import annotations

from jan_serve.core.models import ModelSource
from jan_serve.ipc.messages import LoadModel, Pong
from jan_serve.store.model_memory import Footprint
from jan_serve.supervisor.crash_backoff import RestartLimits
from jan_serve.supervisor.limits import WorkerLimits
from jan_serve.supervisor.models.model_history import ModelHistory
from jan_serve.supervisor.models.resident_model import ResidentModel
from jan_serve.supervisor.workers.worker_process import WorkerProcess
from tests.support.clock import TurnedClock
from tests.support.engine.engines import FAKE_ENGINE

SIZE = Footprint(weights=100, context=40, least_context=10, working=20, on_device=30)
LOAD = LoadModel(path="/m")
SOURCE = ModelSource(name="m", path="/m")


class Pulse(WorkerProcess):
    """A worker that is not started; its pulse is the test's."""

    last: Pong | None = None

    @property
    def pong(self) -> Pong | None:
        return self.last


def resident(
    command: tuple[str, ...] = FAKE_ENGINE, clock: TurnedClock | None = None
) -> tuple[ResidentModel, Pulse]:
    worker = Pulse("m", command, WorkerLimits(), on_change=lambda: None)
    history = ModelHistory(SOURCE, RestartLimits())
    made = ResidentModel(SOURCE, history, LOAD, SIZE, worker, lambda: None, clock or TurnedClock())
    return made, worker
