"""How far a compilation is, from the lines of ninja or make."""

from __future__ import annotations

import re
import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self, TextIO

_NINJA: Final = re.compile(r"^\s*\[(\d+)/(\d+)\]")
_MAKE: Final = re.compile(r"^\s*\[\s*(\d+)%\]")
_TERMINAL_EVERY_S: Final = 1.0
_PLAIN_EVERY_S: Final = 30.0


class Progress:
    """Shows steps done, steps in all and the time left: on a terminal in one line, else in a line every 30 s.

    Lines come also while a step lasts, so that silence is never long.
    """

    def __init__(
        self, what: str, stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._what = what
        self._stream = stream or sys.stderr
        self._clock = clock
        self._terminal = self._stream.isatty()
        self._done, self._total = 0, 0
        self._begun = self._since = clock()
        self._shown = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._repeat, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()
        self._erase()

    def read(self, line: str) -> None:
        """A line of the tool's output; anything else than a step is ignored."""
        if ninja := _NINJA.match(line):
            done, total = int(ninja[1]), int(ninja[2])
        elif make := _MAKE.match(line):
            done, total = int(make[1]), 100
        else:
            return
        if self._total == 0:
            self._since = self._clock()
        self._done, self._total = done, total

    def text(self) -> str:
        """The line to show."""
        elapsed = self._clock() - self._begun
        if self._total == 0:
            return f"==> {self._what}: preparing, {_duration(elapsed)} so far"
        share = f"{self._done} of {self._total} steps"
        if self._done < self._total and self._done * 20 >= self._total:
            left = (self._clock() - self._since) / self._done * (self._total - self._done)
            return f"==> {self._what}: {share}, about {_duration(left)} left"
        return f"==> {self._what}: {share}, {_duration(elapsed)} so far"

    def show(self) -> None:
        """Write the line now."""
        text = self.text()
        if self._terminal:
            self._stream.write("\r" + text.ljust(self._shown))
            self._shown = len(text)
        else:
            self._stream.write(text + "\n")
        self._stream.flush()

    def _repeat(self) -> None:
        while not self._ended.wait(_TERMINAL_EVERY_S if self._terminal else _PLAIN_EVERY_S):
            self.show()

    def _erase(self) -> None:
        if self._shown:
            self._stream.write("\r" + " " * self._shown + "\r")
            self._stream.flush()


def _duration(seconds: float) -> str:
    whole = round(seconds)
    return f"{whole} s" if whole < 90 else f"{round(whole / 60)} min"
