"""A worker process that starts before its model is known."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from jan_serve.core.models import ModelFacts
from jan_serve.ipc.messages import EngineSettings, LoadModel
from jan_serve.supervisor.limits import WorkerLimits
from jan_serve.supervisor.models.model_manager import ModelManager
from jan_serve.supervisor.workers.child_process import child_environment
from jan_serve.supervisor.workers.spare_worker import SpareWorker
from jan_serve.supervisor.workers.worker_process import WorkerProcess
from tests.support.engine.engines import FAKE_ENGINE, FakeResolver
from tests.support.processes import children, until

pytestmark = pytest.mark.anyio


async def test_a_load_takes_it() -> None:
    spare = SpareWorker()
    await spare.start(FAKE_ENGINE, huge_pages=True)
    [process] = children()
    worker = WorkerProcess("tiny", FAKE_ENGINE, WorkerLimits(), on_change=lambda: None, spare=spare)
    await worker.start(LoadModel(path="tiny.gguf"))
    try:
        assert worker.pid == process.pid
        await until(lambda: isinstance(worker.outcome, ModelFacts))
        assert spare.take(child_environment(os.environ, huge_pages=True)) is None
        await spare.close()
        assert worker.end is None
    finally:
        await worker.stop()
    assert children() == []


async def test_a_load_with_another_environment_starts_its_own() -> None:
    spare = SpareWorker()
    await spare.start(FAKE_ENGINE, huge_pages=True)
    [process] = children()
    worker = WorkerProcess("tiny", FAKE_ENGINE, WorkerLimits(), on_change=lambda: None, spare=spare)
    await worker.start(LoadModel(path="tiny.gguf", settings=EngineSettings(huge_pages=False)))
    assert worker.pid != process.pid
    await worker.stop()
    await spare.close()
    assert children() == []


async def test_one_that_ended_is_not_taken() -> None:
    spare = SpareWorker()
    await spare.start(FAKE_ENGINE, huge_pages=True)
    [process] = children()
    process.kill()
    # Nothing public says that it ended: `take` would hand it over before.
    ours = spare._process  # pyright: ignore[reportPrivateUsage]
    assert ours is not None
    await ours.exited.wait()
    assert spare.take(child_environment(os.environ, huge_pages=True)) is None
    await spare.close()


async def test_it_ends_if_no_load_takes_it() -> None:
    spare = SpareWorker(kept_s=0.0)
    await spare.start(FAKE_ENGINE, huge_pages=True)
    await until(lambda: children() == [])
    assert spare.take(child_environment(os.environ, huge_pages=True)) is None
    await spare.close()


async def test_a_failed_start_is_left_to_the_load() -> None:
    spare = SpareWorker()
    await spare.start(("/nonexistent/worker",), huge_pages=True)
    assert spare.take(child_environment(os.environ, huge_pages=True)) is None
    await spare.close()


async def test_a_second_start_keeps_it_unless_the_setting_differs() -> None:
    spare = SpareWorker()
    await spare.start(FAKE_ENGINE, huge_pages=True)
    [process] = children()
    await spare.start(FAKE_ENGINE, huge_pages=True)
    assert children() == [process]
    await spare.start(FAKE_ENGINE, huge_pages=False)
    [other] = children()
    assert other != process
    assert spare.take(child_environment(os.environ, huge_pages=True)) is None
    taken = spare.take(child_environment(os.environ, huge_pages=False))
    assert taken is not None
    assert taken.pid == other.pid
    taken.kill()
    await taken.exited.wait()
    taken.close()


async def test_a_manager_takes_and_ends_it(tmp_path: Path) -> None:
    loads: list[bool] = []
    spare = SpareWorker()
    await spare.start(FAKE_ENGINE, huge_pages=True)
    manager = ModelManager(
        FakeResolver(tmp_path), FAKE_ENGINE, on_load=lambda: loads.append(True), spare=spare
    )
    [process] = children()
    async with manager.lease("fake"):
        assert children() == [process]
    assert loads == [True]
    await manager.shutdown(0.0)
    assert children() == []
    await spare.start(FAKE_ENGINE, huge_pages=True)
    unused = ModelManager(FakeResolver(tmp_path), FAKE_ENGINE, spare=spare)
    await unused.shutdown(0.0)
    assert children() == []
