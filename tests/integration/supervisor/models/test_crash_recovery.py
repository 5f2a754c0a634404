"""Workers that crash, stall or lose their parent: one error for each request, back-off, and no leftovers."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
from collections.abc import AsyncGenerator, Mapping, Sequence
from pathlib import Path

import psutil
import pytest

from jan_serve.core.constraint import CompiledGrammar, Guide
from jan_serve.core.models import ModelSource, ModelStatus
from jan_serve.errors import (
    EngineCrashed,
    GrammarTooComplex,
    InvalidModel,
    JanServeError,
    ModelFailed,
    Unavailable,
)
from jan_serve.ipc.messages import Chunk, EngineRequest, EngineSettings
from jan_serve.supervisor.crash_backoff import RestartLimits
from jan_serve.supervisor.limits import ManagerLimits, WorkerLimits
from jan_serve.supervisor.models.model_history import ModelHistory
from jan_serve.supervisor.models.model_manager import ModelManager
from jan_serve.supervisor.workers.child_process import ChildProcess
from jan_serve.supervisor.workers.worker_process import WorkerEnd
from tests.support.clock import TurnedClock
from tests.support.engine.engines import FAKE_ENGINE, FakeResolver, Gate, fake_manager
from tests.support.processes import children, until, zombies

pytestmark = pytest.mark.anyio

NO_RETRY = ManagerLimits(retry=0)
NO_PAUSE = ManagerLimits(restart=RestartLimits(backoff_s=(0.0,), max_crashes=10**6), retry=0)


async def ask(manager: ModelManager, prompt: str, name: str | None = None) -> str:
    """The text of one answer."""
    async with manager.lease(name) as client:
        stream = client.generate(EngineRequest(cache_salt="", id=client.next_id(), prompt=(prompt,)))
        return "".join([event.text async for event in stream if isinstance(event, Chunk)])


def status(manager: ModelManager, name: str = "fake") -> ModelStatus:
    """What the snapshot says of one model."""
    return next(model for model in manager.snapshot().models if model.name == name)


@contextlib.asynccontextmanager
async def clocked(
    folder: Path, names: Sequence[str], limits: ManagerLimits | None = None
) -> AsyncGenerator[tuple[ModelManager, FakeResolver, TurnedClock]]:
    clock = TurnedClock()
    resolver = FakeResolver(folder, names)
    manager = ModelManager(resolver, FAKE_ENGINE, limits, clock)
    try:
        yield manager, resolver, clock
    finally:
        await manager.shutdown(0)


SIGNALS = ["SEGV", "ABRT", "KILL"]


@pytest.mark.parametrize("name", SIGNALS)
async def test_a_crash_in_decode_fails_every_open_request_once_and_the_next_is_served(
    tmp_path: Path, name: str
) -> None:
    async with fake_manager(tmp_path, limits=NO_PAUSE) as manager:
        before = await ask(manager, "!pid")
        streams = [asyncio.create_task(ask(manager, "!stream 1000000 1ms")) for _ in range(3)]
        await until(lambda: status(manager).leases == 3)
        dying = asyncio.create_task(ask(manager, f"!die-after 3 {name}"))
        results = await asyncio.gather(dying, *streams, return_exceptions=True)
        assert [type(result) for result in results] == [EngineCrashed] * 4
        assert f"SIG{name}" in str(results[0])
        assert await ask(manager, "!say back") == "back"
        assert await ask(manager, "!pid") != before
        assert (status(manager).crashes_total, status(manager).loads_total) == (1, 2)


@pytest.mark.parametrize("name", SIGNALS)
async def test_a_crash_in_load_fails_its_request(tmp_path: Path, name: str) -> None:
    model = f"crash-on-load-{name}"
    kind = ModelFailed if name == "KILL" else InvalidModel
    async with fake_manager(tmp_path, (model, "fake"), limits=NO_PAUSE) as manager:
        with pytest.raises(kind, match=rf"SIG{name}.*GGML_ASSERT\(tensor != NULL\) failed"):
            await ask(manager, "hello", model)
        assert await ask(manager, "!say fine", "fake") == "fine"


async def test_a_file_that_ends_each_load_is_refused_and_not_tried_for_ever(tmp_path: Path) -> None:
    limits = ManagerLimits(restart=RestartLimits(backoff_s=(0.0,)), retry=0)
    model = "crash-on-load-SEGV"
    async with fake_manager(tmp_path, (model,), limits=limits) as manager:
        for crashes in (2, 3, 3, 3):
            with pytest.raises(InvalidModel, match=rf"ended at each load of {model}\.gguf \(signal SIGSEGV"):
                await ask(manager, "hello", model)
            assert status(manager, model).crashes_total == crashes


@pytest.mark.parametrize("after", [("ABRT", "load"), ("KILL", "load"), ("ABRT", "KILL", "ABRT", "load")])
async def test_one_crash_in_a_load_may_have_any_cause(tmp_path: Path, after: tuple[str, ...]) -> None:
    model = "ends-as-told"
    told = tmp_path / f"{model}.gguf.ends"
    told.write_text(" ".join(after))
    async with fake_manager(tmp_path, (model,), limits=NO_PAUSE) as manager:
        for _ in range(after.count("KILL")):
            with pytest.raises(ModelFailed, match="SIGKILL"):
                await ask(manager, "hello", model)
        assert await ask(manager, "!say fine", model) == "fine"
        assert status(manager, model).crashes_total == len(after) - 1


@pytest.mark.parametrize(
    "words",
    [
        "terminate called after throwing an instance of 'std::bad_alloc'",
        "CUDA error: out of memory",
        "vk::DeviceLost",
    ],
)
def test_a_machine_that_fails_is_not_the_files_fault(words: str) -> None:
    history = ModelHistory(ModelSource(name="m", path="m.gguf", revision=(1,)), RestartLimits())
    for _ in range(3):
        assert not history.load_crashed(WorkerEnd(requested=False, status="signal SIGABRT", words=words), 2)
    assert history.unusable() is None


async def test_a_projector_that_ends_the_load_is_left_out(tmp_path: Path) -> None:
    settings = EngineSettings(projector="mmproj-crash-on-load-ABRT.gguf")
    async with fake_manager(tmp_path, settings=settings) as manager:
        assert await ask(manager, "!say fine") == "fine"
        async with manager.lease(None) as client:
            fault = client.facts.projector_fault
        assert "SIGABRT" in fault and "GGML_ASSERT" in fault and "mmproj-crash-on-load-ABRT.gguf" in fault
        assert status(manager).crashes_total == 0


async def test_a_projector_is_not_blamed_for_an_exception_of_the_worker(tmp_path: Path) -> None:
    settings = EngineSettings(projector="mmproj-sound.gguf")
    async with fake_manager(tmp_path, ("raise-on-load",), limits=NO_PAUSE, settings=settings) as manager:
        with pytest.raises(ModelFailed, match="could not be loaded: exit status 1: MemoryError"):
            await ask(manager, "!say fine")
        assert status(manager, "raise-on-load").crashes_total == 1


@pytest.mark.parametrize(
    ("number", "error"), [(errno.EMFILE, "cannot open more files"), (errno.EAGAIN, "could not be started")]
)
async def test_a_projector_is_not_blamed_for_a_worker_that_could_not_be_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, error: str
) -> None:
    failures, spawn = [OSError(number, os.strerror(number)) for _ in range(2)], ChildProcess.spawn

    async def fail(command: Sequence[str], environment: Mapping[str, str]) -> ChildProcess:
        if failures:
            raise failures.pop()
        return await spawn(command, environment)

    monkeypatch.setattr(ChildProcess, "spawn", fail)
    settings = EngineSettings(projector="mmproj-sound.gguf")
    async with fake_manager(tmp_path, limits=NO_PAUSE, settings=settings) as manager:
        for _ in range(2):
            with pytest.raises(Unavailable, match=error):
                await ask(manager, "!say fine")
        assert await ask(manager, "!say fine") == "fine"
        async with manager.lease(None) as client:
            assert client.facts.projector_fault == ""


@pytest.mark.parametrize(("kills", "blamed"), [(1, False), (2, True)])
async def test_a_projector_is_left_out_of_one_load_after_two_crashes_in_a_row(
    tmp_path: Path, kills: int, blamed: bool
) -> None:
    gate = Gate(tmp_path / "slow-load.gguf.gate")
    settings = EngineSettings(projector="mmproj-sound.gguf")

    async def fault(manager: ModelManager, kills: int) -> str:
        asked = asyncio.create_task(ask(manager, "!say fine"))
        killed: set[int] = set()

        def started() -> set[int]:
            return {model.pid for model in manager.snapshot().models if model.pid is not None} - killed

        for _ in range(kills):
            await until(lambda: bool(started()))
            pid = started().pop()
            killed.add(pid)
            os.kill(pid, signal.SIGKILL)
        await until(lambda: bool(started()))
        await asyncio.to_thread(gate.open)
        assert await asked == "fine"
        async with manager.lease(None) as client:
            return client.facts.projector_fault

    async with fake_manager(tmp_path, ("slow-load",), limits=NO_PAUSE, settings=settings) as manager:
        assert ("SIGKILL" in await fault(manager, kills)) is blamed
        await manager.unload("slow-load")
        assert not await fault(manager, 0)


@pytest.mark.parametrize(("name", "required"), [("crash-on-load-ABRT", False), ("fake", True)])
async def test_a_load_ends_for_good_without_the_projector_or_if_it_is_required(
    tmp_path: Path, name: str, required: bool
) -> None:
    projector = "mmproj-crash-on-load-ABRT.gguf"
    settings = EngineSettings(projector=projector, projector_required=required)
    async with fake_manager(tmp_path, (name,), limits=NO_PAUSE, settings=settings) as manager:
        with pytest.raises(InvalidModel, match="SIGABRT"):
            await ask(manager, "!say fine")
        assert status(manager, name).crashes_total == (2 if required else 1)


async def test_a_request_that_comes_with_the_crash_waits_for_the_restart(tmp_path: Path) -> None:
    async with fake_manager(tmp_path, limits=NO_RETRY) as manager:
        with pytest.raises(EngineCrashed):
            await ask(manager, "!die")
        assert status(manager).state == "restarting"
        assert await ask(manager, "!say back") == "back"


async def test_three_crashes_fail_the_model_and_nothing_else(tmp_path: Path) -> None:
    limits = ManagerLimits(restart=RestartLimits(backoff_s=(0.01, 0.02, 0.04)), retry=0)
    async with clocked(tmp_path, ("crash-on-load-KILL", "fake"), limits) as (manager, _, clock):
        crashes: set[int] = set()
        errors: list[ModelFailed] = []
        for _ in range(20):
            with pytest.raises(ModelFailed) as caught:
                await ask(manager, "hello")
            errors.append(caught.value)
            clock.now += 0.1
            crashes.add(status(manager, "crash-on-load-KILL").crashes_total)
        assert crashes == {1, 2, 3}
        assert all("GGML_ASSERT(tensor != NULL) failed" in error.message for error in errors)
        assert "crashed 3 times" in errors[-1].message
        assert errors[-1].retry_after == pytest.approx(60 - 1.7)
        assert status(manager, "crash-on-load-KILL").state == "failed"
        assert await ask(manager, "!say fine", "fake") == "fine"


async def test_a_new_file_is_tried_at_once(tmp_path: Path) -> None:
    async with clocked(
        tmp_path, ("fake",), ManagerLimits(restart=RestartLimits(max_crashes=1), retry=0)
    ) as setting:
        manager, resolver, _ = setting
        with pytest.raises(EngineCrashed):
            await ask(manager, "!die")
        with pytest.raises(ModelFailed):
            await ask(manager, "hello")
        resolver.change_file("fake")
        assert await ask(manager, "!say new") == "new"


async def test_a_pause_that_is_too_long_to_wait_for_is_refused_with_its_length(tmp_path: Path) -> None:
    limits = ManagerLimits(restart=RestartLimits(backoff_s=(4.0,), patience_s=2.0), retry=0)
    async with clocked(tmp_path, ("fake",), limits) as (manager, _, clock):
        with pytest.raises(EngineCrashed):
            await ask(manager, "!die")
        with pytest.raises(ModelFailed, match="about to be started again") as caught:
            await ask(manager, "hello")
        assert caught.value.retry_after == 4.0
        clock.now += 4.0
        assert await ask(manager, "!say back") == "back"


async def test_a_model_in_its_pause_does_not_hold_up_another(tmp_path: Path) -> None:
    limits = ManagerLimits(restart=RestartLimits(backoff_s=(30.0,), patience_s=60.0), retry=0)
    async with fake_manager(tmp_path, ("a", "b"), limits=limits) as manager:
        with pytest.raises(EngineCrashed):
            await ask(manager, "!die", "a")
        waiting = asyncio.create_task(ask(manager, "hello", "a"))
        await until(lambda: status(manager, "a").waiting == 1)
        assert await ask(manager, "!say b", "b") == "b"
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)


async def test_a_grammar_that_hangs_the_sampler_is_no_crash_of_the_model(tmp_path: Path) -> None:
    limits = ManagerLimits(
        worker=WorkerLimits(ping_s=0.02, sample_s=0.1), restart=RestartLimits(backoff_s=(30.0,)), retry=0
    )
    async with fake_manager(tmp_path, limits=limits) as manager:
        for _ in range(4):
            async with manager.lease(None) as client:
                grammar = CompiledGrammar('start: /[a-z ]{0,200}/ "!"')
                request = EngineRequest(
                    cache_salt="",
                    id=client.next_id(),
                    prompt=("!stall sample",),
                    guide=Guide(grammar=grammar),
                )
                with pytest.raises(GrammarTooComplex):
                    async for _event in client.generate(request):
                        pass
        assert await ask(manager, "!say next") == "next"
        assert (status(manager).stalls_total, status(manager).crashes_total) == (4, 0)


async def test_twenty_restarts_leave_no_zombie_and_no_descriptor(tmp_path: Path) -> None:
    async with fake_manager(tmp_path, limits=NO_PAUSE) as manager:
        await ask(manager, "hello")
        descriptors = psutil.Process().num_fds()
        for number in range(20):
            with pytest.raises(EngineCrashed):
                await ask(manager, f"!die {SIGNALS[number % 3]}")
        assert await ask(manager, "!say still here") == "still here"
        assert zombies() == []
        assert len(children()) == 1
        await until(lambda: psutil.Process().num_fds() <= descriptors + 2)
        assert status(manager).loads_total == 21
    assert children() == []


async def test_messages_to_people_hold_no_paths(tmp_path: Path) -> None:
    path = f"{tmp_path}/secret/place.gguf"
    async with fake_manager(tmp_path, limits=NO_PAUSE) as manager:
        with pytest.raises(JanServeError) as caught:
            await ask(manager, f"!exit 1 cannot map {path} at 0x7f0012345678")
        assert "place.gguf at <address>" in caught.value.message
        assert str(tmp_path) not in caught.value.message
