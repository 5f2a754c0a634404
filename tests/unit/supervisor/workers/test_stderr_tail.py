"""What is kept of a worker's stderr, and what of it may be shown."""

from __future__ import annotations

import pytest

from jan_serve.supervisor.workers.stderr_tail import MAX_LINE_CHARS, MAX_LINES, StderrTail, sanitise

TEXT = "first line\nzweite Zeile é 模\r\n\nlast without end"


def test_lines_do_not_depend_on_where_the_bytes_are_cut() -> None:
    data = TEXT.encode()
    for cut in range(len(data) + 1):
        tail = StderrTail()
        seen = [*tail.feed(data[:cut]), *tail.feed(data[cut:]), *tail.close()]
        assert seen == ["first line", "zweite Zeile é 模", "last without end"]
        assert list(tail.lines) == seen


def test_only_the_last_lines_are_kept() -> None:
    tail = StderrTail()
    tail.feed("".join(f"line {number}\n" for number in range(1000)).encode())
    assert len(tail.lines) == MAX_LINES
    assert tail.lines[-1] == "line 999"


def test_a_line_without_end_does_not_grow() -> None:
    tail = StderrTail()
    for _ in range(1000):
        tail.feed(b"x" * 10_000)
    (line,) = tail.close()
    assert line == "x" * MAX_LINE_CHARS + "…"


@pytest.mark.parametrize(
    ("raw", "safe"),
    [
        ("plain", "plain"),
        ("\x1b[31mred\x1b[0m", "\\x1b[31mred\\x1b[0m"),
        ("bell\x07 nul\x00", "bell\\x07 nul\\x00"),
        ("carriage\rreturn", "carriage\\x0dreturn"),
        ("tab\there", "tab    here"),
        ("right\u202eto left", "right\\x202eto left"),
    ],
)
def test_control_characters_are_escaped(raw: str, safe: str) -> None:
    assert sanitise(raw) == safe


def test_bytes_that_are_no_text_are_replaced() -> None:
    tail = StderrTail()
    assert tail.feed(b"bad \xff\xfe\n") == ["bad \ufffd\ufffd"]


def test_the_last_words_are_the_reason_in_the_lines() -> None:
    tail = StderrTail()
    tail.feed(b"sched_reserve: graph nodes = 966\nMemoryErr")
    assert tail.last_words() == ""
    tail.feed(b"or\n")
    assert tail.last_words() == "MemoryError"
