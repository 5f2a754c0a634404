"""Teams exclude each other by their sizes, let each other in, and end with their processes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from jan_serve.engine import compute_lock as module
from jan_serve.engine.compute_lock import ComputeLock

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="nobody waits there")
LARGE, SMALL = 3, 2  # threads, of four cores


class Clock:
    """Time that passes only as told; sleeps are counted and take no time."""

    def __init__(self) -> None:
        self.now = 100.0
        self.slept = 0.0
        self.during_sleep: Callable[[], None] = lambda: None

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept += seconds
        self.now += seconds
        self.during_sleep()


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(module, "time", found)
    monkeypatch.setattr(module, "usable_cores", lambda: 4)
    return found


def is_locked(path: Path) -> bool:
    import fcntl

    with path.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False


def test_a_turn_ends_with_its_process(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from jan_serve.engine.compute_lock import ComputeLock\n"
        "with ComputeLock(1000, Path(sys.argv[1])): print(flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", script, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline()
        assert is_locked(tmp_path / "cores.lock")
        process.kill()
    with ComputeLock(LARGE, tmp_path):
        pass
