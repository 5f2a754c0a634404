"""A resident's memory, its keep-alive, and whether it takes requests; a worker that cannot be started."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from jan_serve.errors import InsufficientMemory, ProtocolError
from jan_serve.ipc.messages import LoadModel
from jan_serve.supervisor.crash_backoff import RestartLimits
from jan_serve.supervisor.limits import WorkerLimits
from jan_serve.supervisor.models.model_history import ModelHistory
from jan_serve.supervisor.models.resident_model import (
    LoadState,
    ResidentModel,
)
from jan_serve.supervisor.workers.worker_process import LoadOutcome, WorkerEnd, WorkerProcess
from tests.support.clock import TurnedClock
from tests.support.engine.engines import FAKE_ENGINE
from tests.support.engine.residents import LOAD, SIZE, SOURCE, resident
from tests.support.processes import children

pytestmark = pytest.mark.anyio


async def test_a_worker_that_cannot_be_started_counts_as_crashed(tmp_path: Path) -> None:
    changed = asyncio.Event()
    worker = WorkerProcess("m", (str(tmp_path / "absent"),), WorkerLimits(), on_change=lambda: None)
    made = ResidentModel(
        SOURCE, ModelHistory(SOURCE, RestartLimits()), LOAD, SIZE, worker, changed.set, TurnedClock()
    )
    assert made.worker.outcome is None
    made.load(lambda: None)
    await changed.wait()
    assert isinstance(made.worker.outcome, WorkerEnd) and not made.worker.outcome.requested
    assert str(made.worker.outcome) == "could not be started (No such file or directory)"
    await made.stop()


async def test_a_load_that_cannot_be_sent_is_over_at_once() -> None:
    changed = asyncio.Event()
    worker = WorkerProcess("m", FAKE_ENGINE, WorkerLimits(), on_change=lambda: None)
    load, history = LoadModel(path="/models/\udcff.gguf"), ModelHistory(SOURCE, RestartLimits())
    made = ResidentModel(SOURCE, history, load, SIZE, worker, changed.set, TurnedClock())
    made.load(lambda: pytest.fail("the worker does not have it"))
    async with asyncio.timeout(60):
        await changed.wait()
    assert isinstance(made.worker.outcome, ProtocolError)
    await made.stop()
    assert (made.state, children()) == (LoadState.GONE, [])


@pytest.mark.parametrize(
    ("error", "outcome"), [(MemoryError(), InsufficientMemory), (ValueError("a defect"), WorkerEnd)]
)
async def test_whatever_a_start_raises_the_load_is_over(
    error: Exception, outcome: type[LoadOutcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    changed = asyncio.Event()
    worker = WorkerProcess("m", FAKE_ENGINE, WorkerLimits(), on_change=lambda: None)
    made = ResidentModel(
        SOURCE, ModelHistory(SOURCE, RestartLimits()), LOAD, SIZE, worker, changed.set, TurnedClock()
    )

    async def fail(_load: object) -> None:
        raise error

    monkeypatch.setattr(worker, "start", fail)
    made.load(lambda: pytest.fail("it has not begun"))
    async with asyncio.timeout(60):
        await changed.wait()
    assert type(made.worker.outcome) is outcome
    await made.stop()


async def test_a_stop_during_the_load_frees_the_memory_once() -> None:
    made, _ = resident()
    made.load(lambda: None)
    stopping = made.stop()
    assert made.stop() is stopping
    assert (made.state, made.gone.is_set()) == (LoadState.STOPPING, False)
    await stopping
    assert (made.state, made.gone.is_set()) == (LoadState.GONE, True)
