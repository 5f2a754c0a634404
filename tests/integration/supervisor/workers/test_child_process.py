"""A child process, and a worker that starts before its model is known."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest

from jan_serve.cli.server.head_start import event_loop_factory
from jan_serve.core.models import ModelFacts
from jan_serve.ipc.messages import EngineSettings, LoadModel
from jan_serve.supervisor.limits import WorkerLimits
from jan_serve.supervisor.models.model_manager import ModelManager
from jan_serve.supervisor.workers.child_process import ChildProcess, SpareWorker, child_environment
from jan_serve.supervisor.workers.worker_process import WorkerProcess
from tests.support.engine.engines import FAKE_ENGINE, FakeResolver
from tests.support.processes import alive, children, until

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def child(script: str) -> AsyncGenerator[ChildProcess]:
    process = await ChildProcess.spawn((sys.executable, "-c", script), os.environ)
    try:
        yield process
    finally:
        process.kill()
        await process.exited.wait()
        process.close()


async def test_it_has_three_pipes() -> None:
    script = "import sys; t = sys.stdin.read(); print(t.upper()); print(len(t), file=sys.stderr)"
    async with child(script) as process:
        process.stdin.write(b"hello")
        process.stdin.close()
        assert (await process.stdout.read()).strip() == b"HELLO"
        assert (await process.stderr.read()).strip() == b"5"
        await process.exited.wait()
        assert (process.returncode, process.status) == (0, "exit status 0")


@pytest.mark.skipif(sys.platform == "win32", reason="no signals there")
@pytest.mark.parametrize(
    ("script", "status"),
    [
        ("import sys; sys.exit(3)", "exit status 3"),
        ("import os; os.kill(os.getpid(), 9)", "signal SIGKILL"),
        ("import os; os.abort()", "signal SIGABRT"),
    ],
)
async def test_how_it_ended(script: str, status: str) -> None:
    async with child(script) as process:
        await process.exited.wait()
        assert process.status == status


async def test_killing_one_that_has_ended_does_nothing() -> None:
    async with child("") as process:
        await process.exited.wait()
        process.kill()
        assert process.returncode == 0


@pytest.mark.skipif(sys.platform == "win32", reason="groups of POSIX")
async def test_the_whole_group_is_killed() -> None:
    script = (
        "import subprocess, sys, time\n"
        "p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "print(p.pid, flush=True)\n"
        "time.sleep(600)"
    )
    async with child(script) as process:
        grandchild = int(await process.stdout.readline())
        assert os.getpgid(grandchild) == process.pid != os.getpgid(0)
        process.kill()
        await process.exited.wait()
        assert process.returncode == -signal.SIGKILL
        async with asyncio.timeout(60):
            while alive(grandchild):
                await asyncio.sleep(0.01)


async def test_its_end_is_seen_while_a_grandchild_holds_the_pipe() -> None:
    script = (
        "import subprocess, sys\n"
        "p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "print(p.pid, flush=True)"
    )
    async with child(script) as process:
        await process.stdout.readline()
        try:
            async with asyncio.timeout(60):
                await process.exited.wait()
            assert process.returncode == 0
        finally:
            process.kill_group()


async def test_a_program_that_is_not_there() -> None:
    with pytest.raises(FileNotFoundError):
        await ChildProcess.spawn(("/nowhere/at/all",), {})


@pytest.mark.skipif(sys.platform == "win32", reason="limits descriptors")
def test_a_start_without_descriptors_says_so_and_leaves_none_open() -> None:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)

    async def start(room: int) -> None:
        before = os.dup(0)  # the lowest that is free
        os.close(before)
        resource.setrlimit(resource.RLIMIT_NOFILE, (before + room, hard))
        try:
            async with child("") as process:
                await process.exited.wait()
        except OSError as error:
            assert error.errno == errno.EMFILE
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    async def main() -> None:
        async with child("") as process:  # the loop opens some of its own at the first
            await process.exited.wait()
        before = psutil.Process().num_fds()
        for room in range(12):
            await start(room)
        assert psutil.Process().num_fds() <= before

    with asyncio.Runner(loop_factory=event_loop_factory()) as runner:
        runner.run(main())


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
