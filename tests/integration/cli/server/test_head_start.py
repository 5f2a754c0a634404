"""Processes and threads that start before the server."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from jan_serve import __main__ as program
from jan_serve.cli.server import head_start
from tests.support.processes import children


@pytest.fixture
def new_children() -> Callable[[], list[psutil.Process]]:
    """The child processes, but for those of other tests."""
    before = children()
    return lambda: [process for process in children() if process not in before]


def test_what_has_begun_is_taken_once_and_ends_with_its_context(
    new_children: Callable[[], list[psutil.Process]],
) -> None:
    head_start.begin()
    begun = new_children()
    assert len(begun) == 2
    with head_start.take() as taken:
        taken.start()
        assert new_children() == begun
        with head_start.take() as other:
            assert other is not taken
    assert new_children() == []


def test_without_a_beginning_a_start_spawns_them(new_children: Callable[[], list[psutil.Process]]) -> None:
    with head_start.take() as taken:
        taken.start(huge_pages=False)
        assert len(new_children()) == 2
    assert new_children() == []


def test_a_command_line_that_serves_nothing_ends_them() -> None:
    watched = (
        "import atexit, sys\n"
        "import psutil\n"
        # Exit functions run in reverse order: this one after that of the head start.
        "atexit.register(lambda: print(len(psutil.Process().children()), file=sys.stderr))\n"
        "from jan_serve.cli.server import head_start\n"
        "from jan_serve.__main__ import main\n"
        "sys.argv = ['jan-serve', 'serve', '--port', 'none']\n"
        "code = main()\n"
        "print(len(psutil.Process().children()), file=sys.stderr)\n"
        "sys.exit(code)\n"
    )
    done = subprocess.run([sys.executable, "-c", watched], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    first, *_, between, last = done.stderr.splitlines()
    assert first.startswith("error: --port")
    assert (between, last) == ("2", "0")


@pytest.mark.parametrize(
    ("line", "serves"),
    [
        ("", True),
        ("serve --port 1", True),
        ("own-server", True),
        ("--port 1", True),
        ("--help", False),
        ("--version", False),
        ("serve --help", False),
        ("ls", False),
        ("run serve", False),
    ],
)
def test_which_command_lines_start_them(line: str, *, serves: bool) -> None:
    assert program.is_server(line.split()) is serves


HANGS = """
import asyncio, sys, threading
sys.path.insert(0, {app!r})
from jan_serve.cli.server import head_start
head_start.CLOSING_S = 0.1
async def main():
    loop = asyncio.get_running_loop()
    loop.set_default_executor(head_start.DaemonThreads())
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
