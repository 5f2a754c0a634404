from __future__ import annotations

import subprocess
import sys
from pathlib import Path

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
