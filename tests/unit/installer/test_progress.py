"""Progress of a compilation, from what the tools print."""

from __future__ import annotations

import io

import pytest

from scripts.installer.progress import Progress


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize(
    ("at", "line", "text"),
    [
        (5, "  Preparing metadata (pyproject.toml): started", "preparing, 5 s so far"),
        (5, "  [1/131] /tmp/c++ -c x.cpp", "1 of 131 steps, 5 s so far"),
        (95, "  [1/131] /tmp/c++ -c x.cpp", "1 of 131 steps, 2 min so far"),
        (10, "[131/131] Linking", "131 of 131 steps, 10 s so far"),
        (10, "[ 42%] Building CXX object x.o", "42 of 100 steps"),
        (10, "note: [1/2] of a sentence", "preparing"),
    ],
)
def test_lines_of_tools(at: float, line: str, text: str) -> None:
    clock = Clock()
    progress = Progress("compiling", io.StringIO(), clock)
    clock.now = at
    progress.read(line)
    assert progress.text().startswith(f"==> compiling: {text}")


def test_the_time_left_counts_from_the_first_step() -> None:
    clock = Clock()
    progress = Progress("compiling", io.StringIO(), clock)
    clock.now = 60
    progress.read("[1/100] a")
    clock.now = 80
    progress.read("[20/100] b")
    assert progress.text() == "==> compiling: 20 of 100 steps, about 80 s left"


def test_lines_are_plain_where_there_is_no_terminal() -> None:
    stream = io.StringIO()
    progress = Progress("compiling", stream, Clock())
    progress.read("[1/100] a")
    progress.show()
    progress.show()
    assert stream.getvalue() == "==> compiling: 1 of 100 steps, 0 s so far\n" * 2


def test_a_terminal_has_one_line_that_goes_away() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    stream = Terminal()
    with Progress("compiling", stream, Clock()) as progress:
        progress.read("[100/100] a")
        progress.show()
        progress.read("[1/9] a")
        progress.show()
    assert "\n" not in stream.getvalue()
    last, blank, end = stream.getvalue().split("\r")[-3:]
    assert last.startswith("==> compiling: 1 of 9")
    assert (blank.strip(), end) == ("", "")
    assert len(blank) >= len(last.rstrip())
