"""The three standard streams exist, whatever started the process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.terminal import terminal

pytestmark = pytest.mark.skipif(os.name != "posix", reason="descriptors of POSIX")

PREPARE = """
import os, sys
from jan_serve.cli.main import discard_output, prepare_streams
prepare_streams()
"""
ROOT = Path(__file__).resolve().parents[3]


def ran(program: str, redirections: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    """Run Python in a shell with these redirections."""
    return subprocess.run(
        ["sh", "-c", f'exec "$@" {redirections}', "sh", sys.executable, "-c", PREPARE + program],
        env={**os.environ, "PYTHONPATH": str(ROOT / "app"), **environment},
        capture_output=True,
        timeout=120,
        check=False,
    )


def test_closed_streams_do_not_give_their_numbers_to_files() -> None:
    program = "r = os.open(os.devnull, os.O_RDONLY); sys.exit(0 if r > 2 and sys.stdin.read() == '' else 1)"
    done = ran(program, "<&- >&- 2>&-")
    assert done.returncode == 0


@pytest.mark.parametrize("redirection", [">&-", ">/dev/full"])
def test_a_failed_write_names_standard_output(redirection: str) -> None:
    if "/dev/full" in redirection and not Path("/dev/full").exists():
        pytest.skip("there is no /dev/full")
    program = (
        "\ntry:\n    print('x', flush=True)\n"
        "except OSError as error:\n    print(error.filename, file=sys.stderr)\n    discard_output()"
    )
    done = ran(program, redirection)
    assert (done.returncode, done.stderr) == (0, b"standard output\n")


@pytest.mark.parametrize("redirection", ["2>&-", "2>/dev/full"])
def test_failed_writes_to_standard_error_are_ignored(redirection: str) -> None:
    if "/dev/full" in redirection and not Path("/dev/full").exists():
        pytest.skip("there is no /dev/full")
    done = ran("print('x', file=sys.stderr, flush=True); print('done')", redirection)
    assert (done.returncode, done.stdout) == (0, b"done\n")


def test_characters_that_the_encoding_lacks_are_shown_as_codes() -> None:
    done = ran("print('é€'); print('\\udcff', file=sys.stderr)", "", PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert (done.stdout, done.stderr) == (b"\\xe9\\u20ac\n", b"\\udcff\n")


def test_discarded_output_is_not_retried_at_the_end() -> None:
    done = ran("print('lost'); discard_output(); print('lost too')", "")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


IN_BACKGROUND = """
import os, sys
if (child := os.fork()) == 0:
    os.setpgid(0, 0)
    from jan_serve.cli.input import silent_keys
    with silent_keys():
        pass
    os._exit(7)
_, status = os.waitpid(child, os.WUNTRACED)
if os.WIFSTOPPED(status):
    os.kill(child, 9)
    os.waitpid(child, 0)
sys.exit(os.waitstatus_to_exitcode(status) if os.WIFEXITED(status) else 1)
"""


def test_a_job_in_the_background_is_not_stopped_for_its_terminal(tmp_path: Path) -> None:
    command = [sys.executable, "-c", IN_BACKGROUND]
    with terminal(command, {"PYTHONPATH": str(ROOT / "app")}, tmp_path) as shown:
        assert shown.end() == 7, shown.text
