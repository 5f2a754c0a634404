"""The last lines that a worker wrote to stderr, made safe to show.

Native code writes there: its text may hold terminal escapes, file paths and addresses. `lines` is for the log;
`last_words` is for people on the other side of HTTP, so paths, addresses and traceback frames are left out.
"""

from __future__ import annotations

import re
from collections import deque

MAX_LINES = 50
MAX_LINE_CHARS = 400

_ABSOLUTE_PATH = re.compile(r"(?:[A-Za-z]:)?(?:[/\\][^\s/\\:'\",;()<>]+)+[/\\]([^\s/\\:'\",;()<>]+)")
_ADDRESS = re.compile(r"0x[0-9a-fA-F]+")
_FRAME = re.compile(r'^\s*(Traceback \(|File "|#\d+ |\^+$|~*\^)')
_INDENTED = re.compile(r"^\s{2,}")
# llama.cpp's remarks about the model, which are there at every load and explain no end.
_REMARK = re.compile(
    r"^\w+: .*(will not be utilized|n_ctx|not marked as EOG|special_eo[sg]|control-looking token)"
)


def sanitise(text: str) -> str:
    """One line with control, format and unassigned characters escaped, cut at MAX_LINE_CHARS."""
    cut = text[:MAX_LINE_CHARS]
    safe = "".join(
        char if char.isprintable() else f"\\x{ord(char):02x}" for char in cut.replace("\t", "    ")
    )
    return safe + "…" if len(text) > MAX_LINE_CHARS else safe


class StderrTail:
    """A bounded ring of lines, fed with bytes as they come."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=MAX_LINES)
        self._partial = b""

    def feed(self, data: bytes) -> list[str]:
        """Take more bytes; return the lines that they completed, sanitised."""
        *whole, rest = (self._partial + data).replace(b"\r\n", b"\n").split(b"\n")
        longest = 4 * MAX_LINE_CHARS
        if len(rest) > longest:
            # A line without end must not grow: keep its start, which says what it is.
            rest = rest[: longest + 1]
        self._partial = rest
        completed = [sanitise(line.decode("utf-8", "replace")) for line in whole if line.strip()]
        self._lines.extend(completed)
        return completed

    def close(self) -> list[str]:
        """No more bytes come: a line without its end counts as complete."""
        return self.feed(b"\n") if self._partial else []

    @property
    def lines(self) -> tuple[str, ...]:
        """What is kept, oldest first."""
        return tuple(self._lines)

    def last_words(self, count: int = 3) -> str:
        """The last `count` lines that may say why it ended, joined with " | "; "" if there are none."""
        left_out = (_FRAME, _INDENTED, _REMARK)
        said = [line for line in self._lines if not any(pattern.match(line) for pattern in left_out)]
        return " | ".join(_public(line) for line in said[-count:])


def _public(line: str) -> str:
    return _ADDRESS.sub("<address>", _ABSOLUTE_PATH.sub(r"\1", line)).strip()
