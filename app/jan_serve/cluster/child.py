"""A `jan-serve cluster-replica` process: takes its settings on standard input, and drains when that ends."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

COMMAND: Final = (sys.executable, "-P", "-m", "jan_serve", "cluster-replica")
_KEPT_LINES: Final = 20
_END_S: Final = 10.0
"""How long the process gets beyond its drain."""


class ChildEnded(Exception):
    """The process ended by itself. The message has the end of its log."""


class Child:
    """Every method blocks. The process outlives this one by its drain at most: its standard input ends with us."""

    def __init__(self, settings: Mapping[str, Any], command: Sequence[str] = COMMAND) -> None:
        """settings: of `jan-serve serve`, by name. They hold keys, so that they are neither arguments nor variables."""
        self._log: deque[str] = deque(maxlen=_KEPT_LINES)
        # A group of its own: what is sent to Ray's processes does not reach it.
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=_environment(os.environ),
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read_log, name="log of the server", daemon=True)
        self._reader.start()
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # `url` says why
            self._process.stdin.write(msgspec.json.encode(settings) + b"\n")
            self._process.stdin.flush()

    @property
    def pid(self) -> int:
        return self._process.pid

    def url(self) -> str:
        """Where it listens; waits until it does. Raises ChildEnded."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline().decode().strip()
        if not line:
            self._process.wait()
            self.check()
        return line

    def check(self) -> None:
        """Raises ChildEnded."""
        status = self._process.poll()
        if status is not None:
            self._reader.join(_END_S)
            raise ChildEnded(f"the server ended with status {status}:\n" + "\n".join(self._log))

    def stop(self, drain_s: float) -> None:
        """Let running answers finish, at most for `drain_s`, then end it."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # it ended before
            self._process.stdin.close()
        try:
            self._process.wait(drain_s + _END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join(_END_S)
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _read_log(self) -> None:
        """Pass the log on to Ray's log of this process."""
        assert self._process.stderr is not None
        with self._process.stderr as lines:
            for line in lines:
                text = line.decode(errors="replace").rstrip("\n")
                self._log.append(text)
                sys.stderr.write(text + "\n")


def _environment(variables: Mapping[str, str]) -> dict[str, str]:
    """The environment without what Ray sets for its own work: its token, and how many threads its workers use."""
    return {
        name: value for name, value in variables.items() if name != "OMP_NUM_THREADS" and name[:4] != "RAY_"
    }
