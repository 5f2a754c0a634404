"""A program on a terminal of its own, typed at and read as a person would. POSIX only."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path

from tests.support.processes import wait_until

# The child makes the terminal its own, so that Ctrl-C becomes a signal, and goes on as the program.
_ENTER = "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"
_ESCAPES = re.compile(r"\x1b(\[[0-9;?]*[A-Za-z]|\][^\x07]*\x07|[()=>].?)|[\x07\x08]")
CTRL_C, CTRL_D, UP, ALT_ENTER, TAB = "\x03", "\x04", "\x1b[A", "\x1b\r", "\t"


class Terminal:
    """What the program wrote so far is `raw`; `text` is the same without escapes."""

    def __init__(self, process: subprocess.Popen[bytes], descriptor: int) -> None:
        self.process = process
        self._descriptor = descriptor
        self._written = bytearray()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        # EIO is how Linux tells that the program has closed the terminal.
        with contextlib.suppress(OSError):
            while piece := os.read(self._descriptor, 65536):
                self._written += piece

    @property
    def raw(self) -> str:
        """Everything, escapes too."""
        return bytes(self._written).decode("utf-8", "replace")

    @property
    def text(self) -> str:
        """Everything without escapes and carriage returns."""
        return _ESCAPES.sub("", self.raw).replace("\r", "")

    def type(self, keys: str) -> None:
        """Press keys."""
        os.write(self._descriptor, keys.encode())

    def see(self, text: str, *, times: int = 1, limit_s: float = 30.0) -> None:
        """Wait until the text was written so many times. Fails with what was written instead."""
        try:
            wait_until(lambda: self.text.count(text) >= times, limit_s)
        except AssertionError:
            raise AssertionError(f"{text!r} was not written {times} times:\n{self.text}") from None

    def see_prompt(self, prompt: str, *, limit_s: float = 30.0) -> None:
        """Wait until the prompt is the last thing on the screen: what is typed now is read as input."""
        try:
            wait_until(lambda: self.text.rstrip().endswith(prompt), limit_s)
        except AssertionError:
            raise AssertionError(f"no prompt {prompt!r} at the end:\n{self.text}") from None

    def end(self, limit_s: float = 30.0) -> int:
        """The exit status, once everything it wrote was read."""
        status = self.process.wait(limit_s)
        self._reader.join(5)
        return status


@contextlib.contextmanager
def terminal(
    command: Sequence[str], variables: Mapping[str, str], folder: Path, *, columns: int = 100
) -> Generator[Terminal]:
    """Run a command there, in `folder`; it is killed at the end if it still runs."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    environment = {name: value for name, value in os.environ.items() if not name.startswith("JAN_SERVE_")}
    environment |= {"TERM": "xterm-256color", "PROMPT_TOOLKIT_NO_CPR": "1", **variables}
    process = subprocess.Popen(
        [sys.executable, "-c", _ENTER, *command],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=environment,
        cwd=folder,
        start_new_session=True,
    )
    os.close(theirs)
    shown = Terminal(process, ours)
    try:
        yield shown
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(10)
        shown._reader.join(5)  # pyright: ignore[reportPrivateUsage]
        os.close(ours)
