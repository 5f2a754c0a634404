"""Teams exclude each other by their sizes, let each other in, and end with their processes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from jan_serve.engine import compute_lock as module
from jan_serve.engine.compute_lock import ComputeLock
from tests.unit.engine.test_compute_lock import LARGE, Clock, is_locked

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="nobody waits there")


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(module, "time", found)
    monkeypatch.setattr(module, "usable_cores", lambda: 4)
    return found


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
