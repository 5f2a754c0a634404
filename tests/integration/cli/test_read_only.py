"""A data folder that this user may read and not write: the server answers, and each command says so in a line."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.support.clients.raw_http import post
from tests.support.servers.served import running

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(
        sys.platform != "linux", reason="permissions bind the superuser only without capabilities"
    ),
]

_BOUND = (
    "import ctypes, os, sys; drop = ctypes.CDLL(None).prctl;"
    " [drop(24, number, 0, 0, 0) for number in (1, 2)] if os.geteuid() == 0 else None;"
    " os.execv(sys.executable, [sys.executable, '-P', '-m', 'jan_serve', *sys.argv[1:]])"
)
"""PR_CAPBSET_DROP of CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH: permissions bind whoever runs the tests."""
COMMAND = (sys.executable, "-c", _BOUND)


@pytest.fixture
def data(tmp_path: Path) -> Generator[Path]:
    folder = tmp_path / "data"
    folder.mkdir(mode=0o555)
    yield folder
    folder.chmod(0o700)


def cli(data: Path, *words: str) -> tuple[int, str]:
    """Exit status, and what it wrote to the standard error."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("JAN_SERVE_")}
    done = subprocess.run(
        [*COMMAND, *words],
        env={**environment, "JAN_SERVE_DATA_DIR": str(data), "HOME": str(data), "XDG_DATA_HOME": str(data)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.returncode, done.stderr


def test_a_server_answers_and_its_log_says_what_could_not_be_written(data: Path, tmp_path: Path) -> None:
    command = [*COMMAND, "serve", "--port", "0"]
    with running(tmp_path, command, {"JAN_SERVE_DATA_DIR": str(data)}) as server:
        url = server.url()
        chat = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 2}
        assert post(url, "/v1/chat/completions", chat).status == 200
        variant = {"model": "mario", "from": "jan-tiny", "system": "Be Mario", "stream": False}
        assert post(url, "/api/create", variant).status == 500
        server.process.send_signal(signal.SIGTERM)
        assert server.wait() == 0
    assert f"warning: no log file: cannot write to {data}/logs/server.log: Permission denied" in server.log
    (reason,) = [line for line in server.lines if "failed: " in line]
    assert "req_" in reason and "Permission denied" in reason
    assert "Traceback" not in server.log
    assert list(data.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (("ls",), 0, ()),
        (("doctor",), 0, ("cannot write to the data folder", "cannot write to the models folder")),
        (
            ("proxy", "--port", "0"),
            2,
            ("fleet.json cannot be used: Permission denied: give this proxy --fleet-file",),
        ),
        (("import", "--from", "jan", "--folder", "/"), 0, ()),
        (("run", "jan-tiny", "hi"), 0, ()),
    ],
)
def test_a_command_works_or_says_so(
    data: Path, words: tuple[str, ...], status: int, said: tuple[str, ...]
) -> None:
    code, stderr = cli(data, *words)
    assert (code, [text for text in said if text not in " ".join(stderr.split())]) == (status, []), stderr
    assert "Traceback" not in stderr
    assert list(data.iterdir()) == []
