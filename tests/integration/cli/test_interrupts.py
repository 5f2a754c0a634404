"""Ctrl-C in and after the block, in a process of its own."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from jan_serve.cli.interrupts import INTERRUPTED

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="sends POSIX signals")

IMPORTS = (
    "import signal, threading; from jan_serve.cli.interrupts import *; hit = lambda: signal.raise_signal(2)\n"
)
IGNORED = "class Noisy:\n    def __del__(self): hit()\n"


def run(code: str, *, ignored: bool = False) -> tuple[int, str]:
    start = (lambda: signal.signal(signal.SIGINT, signal.SIG_IGN)) if ignored else None
    done = subprocess.run(
        [sys.executable, "-P", "-c", IMPORTS + code], capture_output=True, text=True, check=False,
        timeout=60, preexec_fn=start,
    )  # fmt: skip
    assert done.stderr == ""
    return done.returncode, done.stdout


@pytest.mark.parametrize(
    ("code", "status", "output"),
    [
        ("with interrupts_end_at_once(): hit()", INTERRUPTED, ""),
        (f"{IGNORED}with interrupts_end_at_once(): Noisy()", INTERRUPTED, ""),
        (
            "with interrupts_end_at_once(): pass\ntry: hit()\nexcept KeyboardInterrupt: print('after')",
            0,
            "after\n",
        ),
        ("end_by_interrupts(); hit()", INTERRUPTED, ""),
        (
            "signal.signal(2, lambda *_: print('own'))\nwith interrupts_end_at_once(): hit()\nhit()",
            0,
            "own\nown\n",
        ),
        ("signal.signal(2, lambda *_: print('own'))\nend_by_interrupts(); hit()", 0, "own\n"),
    ],
)
def test_an_interrupt(code: str, status: int, output: str) -> None:
    assert run(code) == (status, output)


def test_interrupts_that_the_shell_ignores_stay_ignored() -> None:
    assert run("with interrupts_end_at_once(): hit()\nprint('on')", ignored=True) == (0, "on\n")


def test_another_thread_changes_no_handler() -> None:
    code = """
def enter():
    with interrupts_end_at_once(): seen.append(signal.getsignal(2))
seen = []
thread = threading.Thread(target=enter); thread.start(); thread.join()
print(seen[0] is signal.default_int_handler)
"""
    assert run(code) == (0, "True\n")
