"""A program on its own terminal, with typed input and screen output. POSIX only."""

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

# The child takes the terminal as its controlling one, so that Ctrl-C becomes a signal, and executes the program.
_ENTER = "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"
_ESCAPES = re.compile(r"\x1b(\[[0-9;?]*[A-Za-z]|\][^\x07]*\x07|[()=>].?)|[\x07\x08]")
CTRL_C, CTRL_D, UP, ALT_ENTER, TAB = "\x03", "\x04", "\x1b[A", "\x1b\r", "\t"


class Terminal:
    """`raw`: the output so far; `text`: the same without escapes."""

    def __init__(self, process: subprocess.Popen[bytes], descriptor: int) -> None:
        self.process = process
        self._descriptor = descriptor
        self._written = bytearray()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        # EIO: Linux's sign that the program has closed the terminal.
        with contextlib.suppress(OSError):
            while piece := os.read(self._descriptor, 65536):
                self._written += piece

    @property
    def raw(self) -> str:
        """The output with escapes."""
        return bytes(self._written).decode("utf-8", "replace")

    @property
    def text(self) -> str:
        """The output without escapes and carriage returns."""
        return _ESCAPES.sub("", self.raw).replace("\r", "")

    @property
    def echoes(self) -> bool:
        """Whether the terminal itself shows what is typed."""
        return bool(termios.tcgetattr(self._descriptor)[3] & termios.ECHO)

    def type(self, keys: str) -> None:
        """Press keys."""
        os.write(self._descriptor, keys.encode())

    def see(self, text: str, *, times: int = 1, limit_s: float = 60.0) -> None:
        """Wait until the text was written `times` times. Fails with the actual output."""
        try:
            wait_until(lambda: self.text.count(text) >= times, limit_s)
        except AssertionError:
            raise AssertionError(f"{text!r} was not written {times} times:\n{self.text}") from None

    def see_prompt(self, prompt: str, *, limit_s: float = 60.0) -> None:
        """Wait until the prompt is last on the screen, so that keys pressed now are read as input."""
        try:
            wait_until(lambda: self.text.rstrip().endswith(prompt), limit_s)
        except AssertionError:
            raise AssertionError(f"no prompt {prompt!r} at the end:\n{self.text}") from None

    def end(self, limit_s: float = 60.0) -> int:
        """The exit status, after all output was read."""
        status = self.process.wait(limit_s)
        self._reader.join(5)
        return status


@contextlib.contextmanager
def terminal(
    command: Sequence[str], variables: Mapping[str, str], folder: Path, *, columns: int = 100
) -> Generator[Terminal]:
    """Run a command on a terminal, in `folder`; kills it at the end if it still runs."""
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
