"""Plans executed on a real folder: idempotent, and undone completely."""

from __future__ import annotations

import sys

import pytest

from jan_serve.daemon.plan import CommandResult, ServiceFailed, run_command


def test_run_command_returns_status_and_output() -> None:
    assert run_command([sys.executable, "-c", "print(1)"]) == CommandResult(0, "1\n")
    done = run_command([sys.executable, "-c", "import sys; sys.exit('no')"])
    assert (done.status, done.output.strip()) == (1, "no")
    with pytest.raises(ServiceFailed, match="jan-serve-absent is not installed"):
        run_command(["jan-serve-absent"])
