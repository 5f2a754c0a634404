"""Child processes: their pipes, how they ended, and that none of their group is left."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import psutil
import pytest

from jan_serve.cli.server.head_start import event_loop_factory
from jan_serve.supervisor.workers.child_process import ChildProcess
from tests.support.processes import alive

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
