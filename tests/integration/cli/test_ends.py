"""Every end of a command: the documented exit status and at most one error line, never a traceback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from jan_serve.cli.errors import EXIT_STATUSES
from tests.support.processes import wait_until
from tests.support.servers.served import serving

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(sys.platform != "linux", reason="needs a POSIX shell and /dev/full"),
]

FAILS = "error: standard output: "
FULL, CLOSED = f"{FAILS}No space left on device\n", f"{FAILS}Bad file descriptor\n"
PROGRAM = [sys.executable, "-P", "-m", "jan_serve"]


def environment(folder: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("JAN_SERVE_")}
    return kept | {
        "JAN_SERVE_DATA_DIR": str(folder / "data"),
        "JAN_SERVE_CONFIG": str(folder / "config.toml"),
    }


def ended(folder: Path, words: str, redirections: str) -> subprocess.CompletedProcess[str]:
    """Run a command line in bash."""
    (folder / "config.toml").touch()
    script = f'set -o pipefail; "$@" {words} {redirections}'
    return subprocess.run(
        ["bash", "-c", script, "bash", *PROGRAM],
        env=environment(folder),
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize(
    ("words", "redirections", "status", "error"),
    [
        ("config --json", ">/dev/full", 1, FULL),
        ("grammar json", ">/dev/full", 1, FULL),
        ("--version", ">/dev/full", 1, FULL),
        ("--help", ">/dev/full", 1, FULL),
        ("config --json", ">&-", 1, CLOSED),
        ("--version", ">&-", 1, CLOSED),
        ("grammar json", ">&- <&-", 1, CLOSED),
        ("config --json", "| true", 1, ""),
        ("grammar json", "| true", 1, ""),
        ("config --json", "2>&-", 0, ""),
        ("config check", "2>&-", 0, ""),
        ("config check", "2>/dev/full", 0, ""),
        ("config check", "2> >(true)", 0, ""),
        ("config check", ">&- 2>/dev/full", 0, ""),
        ("frobnicate", "2>&-", 2, ""),
        ("frobnicate", "2>/dev/full", 2, ""),
        ("config --json", ">/dev/full 2>/dev/full", 1, ""),
    ],
)
def test_streams_that_cannot_be_written(
    tmp_path: Path, words: str, redirections: str, status: int, error: str
) -> None:
    done = ended(tmp_path, words, redirections)
    assert (done.returncode, done.stderr) == (status, error)
    assert done.returncode in EXIT_STATUSES


def test_notes_never_go_to_standard_output(tmp_path: Path) -> None:
    done = ended(tmp_path, "config check", "2>&-")
    assert (done.returncode, done.stdout) == (0, "")


DEEP = "[" * 20_000


@pytest.mark.parametrize(
    ("words", "content", "status"),
    [
        ("config check --config file", f"a = {DEEP}", 2),
        ("config check --config file", "a = " + "{a = " * 330 + "1" + "}" * 330, 2),
        ("config check --config file", "a = " + "1" * 5000, 2),
        ("config check --config file", b"port = \xff", 2),
        ("config check --config .", "", 2),
        ("grammar file", DEEP, 2),
        ("grammar file", b"\xff", 2),
        ("grammar .", "", 2),
        ("grammar /dev/zero", "", 2),
        ("grammar - < file", b"\xff", 2),
        ("run --format file alpha hello", DEEP, 2),
        ("run --format file alpha hello", "[" * 900 + "]" * 900, 2),
        ("run --format file alpha hello", b"\xff", 2),
    ],
)
def test_files_that_cannot_be_read(tmp_path: Path, words: str, content: str | bytes, status: int) -> None:
    (tmp_path / "file").write_bytes(content if isinstance(content, bytes) else content.encode())
    done = ended(tmp_path, words, "")
    assert done.returncode == status, done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith("error: ")
    assert sum(line.startswith("error: ") for line in done.stderr.splitlines()) == 1


_AT_IMPORT = """
import os, signal, sys
class Hook:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), signal.{name})
sys.meta_path.insert(0, Hook())
sys.argv = ["jan-serve", *{words!r}]
from jan_serve.__main__ import main
sys.exit(main())
"""


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
@pytest.mark.parametrize(
    ("words", "module"),
    [
        (["ls"], "jan_serve.cli"),
        (["ls"], "typer"),
        (["ls"], "jan_serve.cli.commands.models.local"),
        (["ls"], "pydantic"),
        (["serve", "--port", "0"], "jan_serve.cli.commands.servers.serve"),
        (["serve", "--port", "0"], "jan_serve.api.server"),
        (["serve", "--port", "0"], "fastapi"),
    ],
)
def test_a_signal_during_imports(tmp_path: Path, words: list[str], module: str, name: str) -> None:
    (tmp_path / "config.toml").touch()
    done = subprocess.run(
        [sys.executable, "-c", _AT_IMPORT.format(module=module, name=name, words=words)],
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    # SIGTERM kills a server that is still starting: a shell shows 143.
    assert done.returncode == (130 if name == "SIGINT" else -signal.SIGTERM)
    assert done.stdout == ""
    assert "Traceback" not in done.stderr


_IN_A_DESTRUCTOR = """
import os, signal, sys
from jan_serve.wiring import parts
build = parts.build_manager
class Dropped:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
def interrupted(*given):
    Dropped()
    return build(*given)
parts.build_manager = interrupted
sys.argv = ["jan-serve", "serve", "--port", "0"]
from jan_serve.__main__ import main
sys.exit(main())
"""


def test_an_interrupt_in_a_destructor_ends_a_starting_server(tmp_path: Path) -> None:
    """Python ignores a KeyboardInterrupt in a destructor: the server would go on."""
    (tmp_path / "config.toml").touch()
    done = subprocess.run(
        [sys.executable, "-c", _IN_A_DESTRUCTOR],
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 130
    assert "Traceback" not in done.stderr


def test_a_server_on_a_full_disk_ends_in_order(tmp_path: Path) -> None:
    logs = tmp_path / "data" / "logs"
    logs.mkdir(parents=True)
    (logs / "server.log").symlink_to("/dev/full")
    with serving(tmp_path, "--port", "0") as server:
        wait_until(lambda: _answers(server.url()))
        server.process.send_signal(signal.SIGTERM)
        assert server.wait() == 0
    assert "Traceback" not in server.log
    assert server.log.count("No space left on device") == 1


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=10) as response:
            return response.status == 200
    except OSError:
        return False
