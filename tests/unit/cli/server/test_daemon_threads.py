from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from jan_serve.cli.server import daemon_threads
from jan_serve.cli.server.daemon_threads import DaemonThreads

HANGS = """
import asyncio, sys, threading
sys.path.insert(0, {app!r})
from jan_serve.cli.server import daemon_threads
daemon_threads.CLOSING_S = 0.1
async def main():
    loop = asyncio.get_running_loop()
    loop.set_default_executor(daemon_threads.DaemonThreads())
    began = asyncio.Event()
    def work():
        loop.call_soon_threadsafe(began.set)
        threading.Event().wait()
    loop.create_task(asyncio.to_thread(work))
    await began.wait()
asyncio.run(main())
sys.exit(7)
"""


def test_work_that_never_ends_does_not_hold_up_the_exit() -> None:
    app = str(Path(__file__).resolve().parents[4] / "app")
    ended = subprocess.run(
        [sys.executable, "-c", HANGS.format(app=app)], capture_output=True, text=True, timeout=60, check=False
    )
    assert (ended.returncode, ended.stderr) == (7, "")


def test_results_errors_and_threads_that_are_used_again() -> None:
    async def main() -> None:
        asyncio.get_running_loop().set_default_executor(DaemonThreads())
        first = await asyncio.to_thread(threading.current_thread)
        assert first.daemon
        with pytest.raises(ZeroDivisionError):
            await asyncio.to_thread(lambda: 1 // 0)
        assert await asyncio.gather(*(asyncio.to_thread(pow, n, 2) for n in range(100))) == [
            n * n for n in range(100)
        ]

    asyncio.run(main())


def test_threads_are_bounded_and_work_waits_for_one() -> None:
    threads = DaemonThreads()
    gate = threading.Event()
    holding = [threads.submit(gate.wait, 60) for _ in range(daemon_threads.MAX_THREADS)]
    waiting = threads.submit(threading.active_count)
    assert not waiting.done()
    gate.set()
    assert all(future.result(60) for future in holding)
    assert waiting.result(60) <= daemon_threads.MAX_THREADS + threading.active_count()
    threads.shutdown()


def test_what_waits_at_the_end_is_cancelled() -> None:
    threads = DaemonThreads()
    gate = threading.Event()
    holding = [threads.submit(gate.wait, 60) for _ in range(daemon_threads.MAX_THREADS)]
    waiting = threads.submit(int)
    threads.shutdown(wait=False)
    assert waiting.cancelled()
    with pytest.raises(RuntimeError):
        threads.submit(int)
    gate.set()
    assert all(future.result(60) for future in holding)
